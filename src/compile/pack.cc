#include <algorithm>
#include <numeric>

#include "compile/place.h"

namespace temper {

Bytes PackIntervals(std::span<Interval> intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].size > intervals[b].size; });

  std::vector<size_t> placed;  // by offset
  Bytes top{};
  for (size_t i : order) {
    Interval& x = intervals[i];
    const Bytes size = AlignUp(x.size, kAlignment);
    Bytes offset{};
    // Placed intervals come in order of offset: walk up until the gap before the next conflicting one is wide enough.
    for (size_t k : placed) {
      const Interval& other = intervals[k];
      if (other.end < x.begin || x.end < other.begin) continue;
      if (other.offset >= offset + size) break;
      offset = std::max(offset, other.offset + AlignUp(other.size, kAlignment));
    }
    x.offset = offset;
    top = std::max(top, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](Bytes o, size_t k) { return o < intervals[k].offset; }),
                  i);
  }
  return top;
}

}  // namespace temper
