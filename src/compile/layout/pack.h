// pack: assigns offsets to intervals of steps such that intervals alive at the same time share no byte.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/units.h"

namespace temper {

// One interval to pack: alive in steps [begin, end], inclusive.
struct Interval {
  int begin = 0, end = 0;
  Bytes size;
  Bytes offset;  // filled by PackIntervals
};

struct PackingGoal {
  // A packing that spans no more than this is accepted at once: something else needs as much anyway, or a search for
  // what fits into this room goes on to something else.
  Bytes enough;
  // If more bytes are alive at once, they do not fit whatever their offsets: there are none then, and the result is an
  // estimate: the peak of live bytes, and what packing usually adds.
  Bytes most{std::numeric_limits<int64_t>::max()};
};

// Assigns offsets such that intervals that share a step share no byte; returns the bytes spanned. Places one interval
// after another at the lowest offset that fits: largest first, by bytes times steps, or longest first, whichever spans
// least. Scratch is placed last if that wastes nothing.
// For the lifetimes of a training step, the result is within two percent of the peak of live bytes. O(n^2) in the worst
// case, close to n log n for the lifetimes of a step.
Bytes PackIntervals(std::span<Interval> intervals, const PackingGoal& goal = {});

}  // namespace temper
