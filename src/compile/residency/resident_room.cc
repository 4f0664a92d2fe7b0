#include "compile/residency/resident_room.h"

#include <algorithm>
#include <utility>

namespace temper {

ResidentRoom::ResidentRoom(Bytes free, std::vector<std::vector<Bytes>> used) : free_(free), used_(std::move(used)) {
  for (std::vector<Bytes>& graph : used_) {
    for (Bytes& at : graph) {
      at = std::min(at, free);
      most_used_ = std::max(most_used_, at);
    }
  }
}

bool ResidentRoom::Take(Bytes always, const LastingBytes& lasting) {
  if (most_used_ + always > free_) return false;
  const auto each = [&](const auto& visit) {
    for (size_t g = 0; g < used_.size() && lasting.bytes.v > 0; ++g) {
      for (size_t i = lasting.from[g]; i < used_[g].size(); ++i) visit(used_[g][i]);
    }
  };
  Bytes most{};
  each([&](const Bytes& at) { most = std::max(most, at); });
  if (most + lasting.bytes + always > free_) return false;
  each([&](Bytes& at) {
    at += lasting.bytes;
    most_used_ = std::max(most_used_, at);
  });
  free_ = free_ - always;
  return true;
}

}  // namespace temper
