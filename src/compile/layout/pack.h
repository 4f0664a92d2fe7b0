// pack: offsets for what lives in intervals of steps, such that what is alive together shares no byte.
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

// Gives offsets such that intervals that share a step share no byte; returns the bytes spanned. One after another, at
// the lowest offset that fits: the largest first, or by bytes times steps, or the longest first, whichever spans least;
// scratch of steps where there is room after all else, where that wastes nothing.
// `enough`: what spans no more is taken at once, because something else takes as much anyway.
// On the lifetimes of a training step that is within two percent of the most that is alive at once. O(n^2) in the
// worst case, near n log n on lifetimes of a step.
Bytes PackIntervals(std::span<Interval> intervals, Bytes enough = {});

}  // namespace temper
