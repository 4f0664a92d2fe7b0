#include "data/shuffle.h"

#include <utility>

#include "base/philox.h"

namespace temper {

void Shuffle(uint64_t seed, std::string_view name, int64_t epoch, std::span<int32_t> items) {
  const RngKey key{.seed = seed, .name_hash = HashName(name), .step = static_cast<uint64_t>(epoch)};
  for (size_t i = items.size(); i > 1; --i) {
    // 64 random bits times i: the high word is uniform in [0, i), except for a bias of i / 2^64.
    const auto draw = Philox(key, i);
    const uint64_t bits = (static_cast<uint64_t>(draw[0]) << 32) | draw[1];
    const auto j = static_cast<size_t>((static_cast<unsigned __int128>(bits) * i) >> 64);
    std::swap(items[i - 1], items[j]);
  }
}

}  // namespace temper
