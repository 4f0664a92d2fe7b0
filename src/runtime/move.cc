#include "runtime/move.h"

#include "base/check.h"

namespace temper {
namespace {

class Move final : public Kernel {
 public:
  Move(const MoveEnd& from, const MoveEnd& to, Bytes size, const MovePath& path)
      : from_(from), to_(to), size_(size), path_(path) {}

  Status Run(const KernelArgs&) override {
    const bool from_disk = from_.tier == Tier::kDisk, to_disk = to_.tier == Tier::kDisk;
    const auto bytes = static_cast<size_t>(size_.v);
    if (!from_disk && !to_disk) {
      return (path_.link != nullptr ? *path_.link : HostStream()).Copy(from_.address, to_.address, size_);
    }
    if (path_.link != nullptr && (from_.tier == Tier::kDevice || to_.tier == Tier::kDevice)) {
      return from_disk ? path_.staging->ToDevice(*path_.disk, from_.address, to_.address, size_)
                       : path_.staging->FromDevice(from_.address, *path_.disk, to_.address, size_);
    }
    return from_disk ? path_.disk->CopyToHost(from_.address, {to_.address, bytes})
                     : path_.disk->CopyToDevice({from_.address, bytes}, to_.address);
  }
  bool replayable() const override { return false; }
  void NoteAwaited(bool awaited) override {
    if (from_.tier == Tier::kDisk) path_.disk->NoteAwaited(awaited);
  }

 private:
  const MoveEnd from_, to_;
  const Bytes size_;
  const MovePath path_;
};

}  // namespace

std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes size, const MovePath& path) {
  TEMPER_CHECK(from.tier != to.tier) << "a move within " << ToString(from.tier);
  return std::make_unique<Move>(from, to, size, path);
}

}  // namespace temper
