// WordCache: remembers the ids of short words. Text repeats itself: nine words in ten were seen before, and a hit costs
// a hash and a comparison instead of a dozen probes of the merge table. Fixed size, no allocation after construction; a
// newer word replaces the older one in its slot. One thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "xxhash.h"

namespace temper {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 22;  // with kMaxIds these make a slot one cache line
  static constexpr size_t kMaxIds = 10;

  WordCache() : slots_(kSlots) {}

  // The slot that holds, or would hold, `word`. REQUIRES: 1 <= word.size() <= kMaxBytes.
  size_t SlotOf(std::string_view word) const { return XXH3_64bits(word.data(), word.size()) & (kSlots - 1); }
  // The ids of `word`, if the slot holds it; `found` tells.
  std::span<const int32_t> Get(size_t slot, std::string_view word, bool* found) const {
    const Slot& s = slots_[slot];
    *found = s.bytes == word.size() && std::memcmp(s.word, word.data(), word.size()) == 0;
    return {s.ids, s.count};
  }
  void Put(size_t slot, std::string_view word, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Slot& s = slots_[slot];
    s.bytes = static_cast<uint8_t>(word.size());
    s.count = static_cast<uint8_t>(ids.size());
    std::memcpy(s.word, word.data(), word.size());
    if (!ids.empty()) std::memcpy(s.ids, ids.data(), ids.size_bytes());
  }

 private:
  struct Slot {
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
    char word[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Slot) == 64);
  // 1 MiB: fits into a second-level cache and holds the working vocabulary of a text.
  static constexpr size_t kSlots = 1 << 14;

  std::vector<Slot> slots_;
};

}  // namespace temper
