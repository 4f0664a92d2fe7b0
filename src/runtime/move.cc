#include "runtime/move.h"

#include "base/check.h"

namespace temper {
namespace {

class Move final : public Kernel {
 public:
  Move(const MoveEnd& from, const MoveEnd& to, Bytes bytes)
      : from_(from), to_(to), bytes_(static_cast<size_t>(bytes.v)) {}

  Status Run(const KernelArgs&) override {
    if (from_.stream == &HostStream()) return to_.stream->CopyToDevice({from_.address, bytes_}, to_.address);
    return from_.stream->CopyToHost(from_.address, {to_.address, bytes_});
  }

 private:
  const MoveEnd from_, to_;
  const size_t bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes bytes) {
  TEMPER_CHECK(from.stream == &HostStream() || to.stream == &HostStream()) << "a move that does not touch the host";
  return std::make_unique<Move>(from, to, bytes);
}

}  // namespace temper
