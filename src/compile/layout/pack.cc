#include "compile/layout/pack.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "program/program.h"

namespace temper {
namespace {

// An interval with its offset.
struct Placed {
  Bytes offset, end;
  int first_step, last_step;
  bool Meets(const Interval& x) const { return first_step <= x.end && x.begin <= last_step; }
};

// Occupied bytes, by offset; ranges that overlap or touch are merged.
class Ranges {
 public:
  void Add(Bytes offset, Bytes end) {
    const auto first =
        std::lower_bound(list_.begin(), list_.end(), offset, [](const Range& r, Bytes at) { return r.end < at; });
    auto last = first;
    for (; last != list_.end() && last->offset <= end; ++last) {
      offset = std::min(offset, last->offset);
      end = std::max(end, last->end);
    }
    if (first == last) {
      list_.insert(first, {offset, end});
    } else {
      *first = {offset, end};
      list_.erase(first + 1, last);
    }
  }

  // The lowest offset, at least `offset`, at which `size` bytes are free.
  Bytes LowestFrom(Bytes offset, Bytes size) const {
    auto at = std::upper_bound(list_.begin(), list_.end(), offset, [](Bytes o, const Range& r) { return o < r.end; });
    for (; at != list_.end() && at->offset < offset + size; ++at) offset = at->end;
    return offset;
  }

 private:
  struct Range {
    Bytes offset, end;
  };
  std::vector<Range> list_;
};

// Placed intervals by stretches of steps, to find those that share steps with another quickly.
class Shelf {
 public:
  explicit Shelf(int steps) : stretches_(static_cast<size_t>(steps / kStretch + 1)) {}

  // The lowest offset at which `x` overlaps no placed interval that shares
  // a step with it: each stretch raises it in turn until none does.
  Bytes LowestFor(const Interval& x, Bytes size) const {
    const size_t first = StretchOf(x.begin), last = StretchOf(x.end);
    size_t seen_first = 0, seen_last = 0;  // positions in the lists `some`, which are walked once
    for (Bytes offset{};;) {
      const Bytes before = offset;
      offset = stretches_[first].LowestFrom(offset, x, size, &seen_first);
      if (last != first) offset = stretches_[last].LowestFrom(offset, x, size, &seen_last);
      for (size_t s = first + 1; s < last; ++s) offset = stretches_[s].taken.LowestFrom(offset, size);
      if (offset == before) return offset;
    }
  }

  void Add(const Interval& x, Bytes size) {
    const Placed placed{x.offset, x.offset + size, x.begin, x.end};
    for (size_t s = StretchOf(x.begin); s <= StretchOf(x.end); ++s) {
      const int begin = static_cast<int>(s) * kStretch;
      Stretch& stretch = stretches_[s];
      stretch.taken.Add(placed.offset, placed.end);
      if (x.begin <= begin && begin + kStretch - 1 <= x.end) {
        stretch.always.Add(placed.offset, placed.end);
      } else {
        const auto at = std::upper_bound(stretch.some.begin(), stretch.some.end(), placed.offset,
                                         [](Bytes offset, const Placed& p) { return offset < p.offset; });
        stretch.some.insert(at, placed);
      }
    }
  }

 private:
  // Most intervals live within a block, of some tens of steps.
  static constexpr int kStretch = 64;

  struct Stretch {
    std::vector<Placed> some;  // alive in some of its steps, by offset
    Ranges always, taken;      // of intervals alive in all of its steps; of all

    // `seen`: the number of `some` already passed: they do not overlap higher offsets either.
    Bytes LowestFrom(Bytes offset, const Interval& x, Bytes size, size_t* seen) const {
      offset = always.LowestFrom(offset, size);
      for (; *seen < some.size() && some[*seen].offset < offset + size; ++*seen) {
        if (some[*seen].Meets(x)) offset = std::max(offset, some[*seen].end);
      }
      return offset;
    }
  };

  static size_t StretchOf(int step) { return static_cast<size_t>(step / kStretch); }

  std::vector<Stretch> stretches_;
};

// If the span is within 1/kTight of the lower bound, no other order is tried.
constexpr int64_t kTight = 1000;
// If the span is within 1/kGood of the lower bound, placing scratch last wasted little.
constexpr int64_t kGood = 100;

// Intervals of one step (scratch) are placed last if at most this part of the peak is alive in that step: they fit
// beside the rest in any case.
constexpr double kRoomy = 0.9;

// Live bytes in each step, with sizes rounded up as for placement.
std::vector<int64_t> AliveInSteps(std::span<const Interval> intervals, int steps) {
  std::vector<int64_t> alive(static_cast<size_t>(steps) + 2, 0);  // first, the changes per step
  for (const Interval& x : intervals) {
    const int64_t size = AlignUp(x.size, kAlignment).v;
    alive[static_cast<size_t>(x.begin)] += size;
    alive[static_cast<size_t>(x.end) + 1] -= size;
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  return alive;
}

// Places intervals one after another, each at the lowest offset where it fits; returns the bytes spanned.
Bytes PlaceInOrder(std::span<Interval> intervals, const std::vector<size_t>& order, int steps) {
  Shelf shelf(steps);
  Bytes top{};
  for (const size_t i : order) {
    Interval& x = intervals[i];
    const Bytes size = AlignUp(x.size, kAlignment);
    x.offset = shelf.LowestFor(x, size);
    top = std::max(top, x.offset + size);
    shelf.Add(x, size);
  }
  return top;
}

}  // namespace

Bytes PackIntervals(std::span<Interval> intervals, Bytes enough) {
  int steps = 0;
  for (const Interval& x : intervals) steps = std::max(steps, x.end);
  const std::vector<int64_t> alive = AliveInSteps(intervals, steps);
  const Bytes bound{*std::max_element(alive.begin(), alive.end())};
  const auto is_within = [&](Bytes span, int64_t part) { return span.v - bound.v <= bound.v / part || span <= enough; };
  const auto comes_last = [&](size_t i) {
    const Interval& x = intervals[i];
    return x.begin == x.end &&
           static_cast<double>(alive[static_cast<size_t>(x.begin)]) <= kRoomy * static_cast<double>(bound.v);
  };
  // For each order there are shapes of steps that it packs a percent looser than another order.
  using Key = double (*)(const Interval&);
  constexpr Key kOrders[] = {
      [](const Interval& x) { return static_cast<double>(x.size.v); },
      [](const Interval& x) { return static_cast<double>(x.size.v) * (x.end - x.begin + 1); },
      [](const Interval& x) { return static_cast<double>(x.end - x.begin); },
  };
  std::vector<size_t> order(intervals.size());
  std::vector<Bytes> best_offsets(intervals.size());
  std::optional<Bytes> best;
  for (const bool short_last : {true, false}) {
    for (const Key key : kOrders) {
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return key(intervals[a]) > key(intervals[b]); });
      if (short_last) std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !comes_last(i); });
      const Bytes span = PlaceInOrder(intervals, order, steps);
      if (!best || span < *best) {
        best = span;
        for (size_t i = 0; i < intervals.size(); ++i) best_offsets[i] = intervals[i].offset;
      }
      if (is_within(*best, kTight)) break;
    }
    if (is_within(*best, kGood)) break;
  }
  for (size_t i = 0; i < intervals.size(); ++i) intervals[i].offset = best_offsets[i];
  return *best;
}

}  // namespace temper
