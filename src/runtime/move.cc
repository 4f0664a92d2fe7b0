#include "runtime/move.h"

#include <algorithm>
#include <vector>

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

class RoutedFetch final : public Kernel {
 public:
  RoutedFetch(const MoveEnd& from, const MoveEnd& to, Bytes size, const RoutedRows& rows, const MovePath& path)
      : from_(from), to_(to), matrix_(size.v / rows.matrices), rows_(rows), path_(path) {
    reads_.reserve(static_cast<size_t>(std::min(rows.rows, rows.matrices)));
  }

  Status Run(const KernelArgs&) override {
    reads_.clear();
    int32_t before = -1;
    for (int64_t p = 0; p < rows_.rows; ++p) {
      const int32_t expert = rows_.expert_P[p];
      if (expert == before) continue;
      // The product that reads the copy reports what is wrong with its rows.
      if (expert < before || expert >= rows_.matrices) return OkStatus();
      if (before >= 0 && expert == before + 1) {
        std::span<std::byte>& last = reads_.back().to;
        last = {last.data(), last.size() + static_cast<size_t>(matrix_)};
      } else {
        const int64_t first = expert * matrix_;
        const Bytes place = from_.tier == Tier::kDisk ? path_.disk->PlaceOf(from_.address + first) : Bytes{first};
        reads_.push_back({place, {to_.address + first, static_cast<size_t>(matrix_)}});
      }
      before = expert;
    }
    if (from_.tier == Tier::kDisk) return path_.disk->CopyAllToHost(reads_);
    for (const StoreRead& read : reads_) {
      TEMPER_RETURN_IF_ERROR(HostStream().Copy(from_.address + read.at.v, read.to.data(), Bytes{std::ssize(read.to)}));
    }
    return OkStatus();
  }
  bool replayable() const override { return false; }
  void NoteAwaited(bool awaited) override {
    if (from_.tier == Tier::kDisk) path_.disk->NoteAwaited(awaited);
  }

 private:
  const MoveEnd from_, to_;
  const int64_t matrix_;  // bytes of each
  const RoutedRows rows_;
  const MovePath path_;
  std::vector<StoreRead> reads_;
};

}  // namespace

std::unique_ptr<Kernel> MakeRoutedFetch(const MoveEnd& from, const MoveEnd& to, Bytes size, const RoutedRows& rows,
                                        const MovePath& path) {
  TEMPER_CHECK(path.link == nullptr && size.v % rows.matrices == 0);
  return std::make_unique<RoutedFetch>(from, to, size, rows, path);
}

std::unique_ptr<Kernel> MakeMove(const MoveEnd& from, const MoveEnd& to, Bytes size, const MovePath& path) {
  TEMPER_CHECK(from.tier != to.tier) << "a move within " << ToString(from.tier);
  return std::make_unique<Move>(from, to, size, path);
}

}  // namespace temper
