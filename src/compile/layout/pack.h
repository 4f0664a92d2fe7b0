// pack: assigns offsets to intervals of steps such that intervals alive at the same time share no byte.
#pragma once

#include <span>

#include "base/units.h"

namespace temper {

// One interval to pack: alive in steps [begin, end], inclusive.
struct Interval {
  int begin = 0, end = 0;
  Bytes size;
  Bytes offset;  // filled by PackIntervals
};

// Assigns offsets such that intervals that share a step share no byte; returns the bytes spanned. Places one interval
// after another at the lowest offset that fits: largest first, by bytes times steps, or longest first, whichever spans
// least. Scratch is placed last if that wastes nothing.
// `enough`: a packing that spans no more than this is accepted at once, because something else needs as much anyway.
// For the lifetimes of a training step, the result is within two percent of the peak of live bytes. O(n^2) in the worst
// case, close to n log n for the lifetimes of a step.
Bytes PackIntervals(std::span<Interval> intervals, Bytes enough = {});

}  // namespace temper
