#include "runtime/move.h"

#include <cstring>

#include "base/check.h"

namespace temper {
namespace {

class Move final : public Kernel {
 public:
  Move(const MoveEnd& from, const MoveEnd& to, Bytes bytes)
      : from_(from), to_(to), bytes_(static_cast<size_t>(bytes.v)) {}

  Status Run(const KernelArgs&) override {
    if (from_.store != nullptr) return from_.store->Read(from_.at, {to_.address, bytes_});
    if (to_.store != nullptr) return to_.store->Write(to_.at, {from_.address, bytes_});
    if (from_.stream == &HostStream()) return to_.stream->CopyToDevice({from_.address, bytes_}, to_.address);
    return from_.stream->CopyToHost(from_.address, {to_.address, bytes_});
  }

 private:
  const MoveEnd from_, to_;
  const size_t bytes_;
};

}  // namespace

std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes bytes) {
  TEMPER_CHECK(from.store == nullptr || to.store == nullptr) << "a move between stores";
  for (const MoveEnd* end : {&from, &to}) {
    TEMPER_CHECK(end->store != nullptr || end->stream != nullptr) << "a move without an end";
  }
  return std::make_unique<Move>(from, to, bytes);
}

}  // namespace temper
