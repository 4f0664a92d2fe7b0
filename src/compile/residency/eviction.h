// eviction: which values stay on the device between two uses. Between them a value takes room and does nothing; one
// that is not kept is brought back for its next use, which takes seconds of a link.
//
// The schedule is fixed, so every next use is known, and this is a choice of intervals under a capacity that differs by
// step: where all are of one size and one cost, to drop the one whose next use is farthest is optimal (Belady); else it
// is a knapsack at every step. Room at a step gets a price, found as in a market: where more want to stay than fit it
// rises. What a gap would pay for its room against what its reload costs then says who goes.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace temper {

// Between two uses of a value, at steps `begin` and `end`. Kept, its bytes are taken at steps begin < t < end; else
// `reload` is paid: a fetch, and before it a write of what has no copy elsewhere.
struct Gap {
  int begin = 0, end = 0;
  Bytes size;
  Seconds reload;
};

// Which gaps are kept, so that at every step `used` (what must be there anyway) and what is kept are at most
// `capacity`. Where `used` alone is more, nothing is kept. Pays the least where sizes and reloads are equal, or where
// few gaps compete; else within a few percent. Near O(n log n).
// REQUIRES: 0 <= begin < end <= used.size(), sizes and reloads not negative.
std::vector<bool> ChooseKept(std::span<const Gap> gaps, std::span<const Bytes> used, Bytes capacity);

}  // namespace temper
