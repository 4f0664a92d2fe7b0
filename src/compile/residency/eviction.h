// eviction: decides which values stay on the device between two uses. A kept value takes memory without being used; a
// value that is not kept must be fetched again for its next use, which takes time on a link.
//
// The schedule is fixed, so every next use is known: the task is to select intervals under a capacity that differs by
// step. If all have the same size and cost, dropping the value with the farthest next use is optimal (Belady);
// otherwise it is a knapsack at every step. Memory at each step gets a price (a Lagrange multiplier), which rises while
// more values want to stay than fit. A gap is kept if its memory costs less than its reload.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace temper {

// The time between two uses of a value, at steps `begin` and `end`. If kept, it takes its bytes at steps begin < t <
// end; otherwise it costs `reload`: a fetch, preceded by a write if there is no other copy.
struct Gap {
  int begin = 0, end = 0;
  Bytes size;
  Seconds reload;
};

// Chooses the gaps to keep, so that at every step `used` (bytes needed anyway) plus the kept bytes are at most
// `capacity`. Where `used` alone exceeds it, nothing is kept. Minimizes the total reload if sizes and reloads are equal
// or if few gaps compete; otherwise within a few percent. About O(n log n).
// REQUIRES: 0 <= begin < end <= used.size(), sizes and reloads not negative.
std::vector<bool> ChooseKept(std::span<const Gap> gaps, std::span<const Bytes> used, Bytes capacity);

}  // namespace temper
