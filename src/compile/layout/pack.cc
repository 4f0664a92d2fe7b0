#include "compile/layout/pack.h"

#include <algorithm>
#include <array>
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

  struct Range {
    Bytes offset, end;
  };
  // Looks for free bytes from lower to higher offsets.
  class Search {
   public:
    explicit Search(const Ranges& ranges) : at_(ranges.list_.data()), end_(at_ + ranges.list_.size()) {}
    // The lowest offset, at least `offset`, at which `size` bytes are free. REQUIRES: no call before had a higher one.
    Bytes LowestFrom(Bytes offset, Bytes size) {
      if (at_ != end_ && at_->end <= offset)
        at_ = std::upper_bound(at_ + 1, end_, offset, [](Bytes o, const Range& r) { return o < r.end; });
      for (; at_ != end_ && at_->offset < offset + size; ++at_) offset = at_->end;
      return offset;
    }

   private:
    const Range *at_, *end_;
  };
  bool empty() const { return list_.empty(); }

 private:
  std::vector<Range> list_;
};

// Placed intervals by stretches of steps, to find those that share steps with another quickly. Stretches are the leaves
// of a tree: an interval that covers many of them lies in the few nodes that cover the same.
class Shelf {
 public:
  explicit Shelf(int steps) {
    for (size_t nodes = static_cast<size_t>(steps / kStretch + 1);; nodes = (nodes + kFanOut - 1) / kFanOut) {
      levels_.emplace_back(nodes);
      if (nodes == 1) break;
    }
    some_.resize(levels_[0].size());
  }

  // The lowest offset at which `x` overlaps no placed interval that shares
  // a step with it: each set of intervals raises it in turn until none does.
  Bytes LowestFor(const Interval& x, Bytes size) {
    const size_t first = StretchOf(x.begin), last = StretchOf(x.end);
    sets_.clear();
    size_t begin = first, end = last + 1;  // the nodes of a level that x touches
    for (const std::vector<Node>& nodes : levels_) {
      AddSet(nodes[begin].always);
      if (end - begin > 1) AddSet(nodes[end - 1].always);
      // Between these two: those whose parent is not between the two of the next level.
      const size_t up = begin / kFanOut, up_end = (end - 1) / kFanOut;
      const size_t left = std::min(end - 1, (up + 1) * kFanOut), right = std::max(left, up_end * kFanOut);
      for (size_t n = begin + 1; n < left; ++n) AddSet(nodes[n].taken);
      for (size_t n = right; n + 1 < end; ++n) AddSet(nodes[n].taken);
      begin = up;
      end = up_end + 1;
    }
    size_t seen_first = 0, seen_last = 0;  // positions in the lists `some`, which are walked once
    for (Bytes offset{};;) {
      const Bytes before = offset;
      for (Ranges::Search& set : sets_) offset = set.LowestFrom(offset, size);
      offset = LowestInSome(some_[first], offset, x, size, &seen_first);
      if (last != first) offset = LowestInSome(some_[last], offset, x, size, &seen_last);
      if (offset == before) return offset;
    }
  }

  void Add(const Interval& x, Bytes size) {
    const Placed placed{x.offset, x.offset + size, x.begin, x.end};
    size_t begin = StretchOf(x.begin), end = StretchOf(x.end) + 1;  // the nodes of a level that x touches
    size_t covered = begin, covered_end = end;                      // and those that it covers
    if (x.begin > static_cast<int>(begin) * kStretch) AddToSome(covered++, placed);
    if (x.end < static_cast<int>(end) * kStretch - 1 && covered < end) AddToSome(--covered_end, placed);
    covered_end = std::max(covered, covered_end);
    for (std::vector<Node>& nodes : levels_) {
      for (size_t n = begin; n < covered; ++n) nodes[n].taken.Add(placed.offset, placed.end);
      for (size_t n = covered_end; n < end; ++n) nodes[n].taken.Add(placed.offset, placed.end);
      // Of the nodes that it covers, those whose parent it does not. The last parent may have fewer children.
      const bool to_end = covered_end == nodes.size() && nodes.size() > 1;
      size_t up = (covered + kFanOut - 1) / kFanOut, up_end = (covered_end + (to_end ? kFanOut - 1 : 0)) / kFanOut;
      if (up_end <= up || nodes.size() == 1) up = up_end = (end - 1) / kFanOut + 1;
      const size_t left = std::min(covered_end, up * kFanOut), right = std::max(left, up_end * kFanOut);
      Cover(nodes, covered, left, placed);
      Cover(nodes, right, covered_end, placed);
      begin = begin / kFanOut;
      end = (end - 1) / kFanOut + 1;
      covered = up;
      covered_end = up_end;
    }
  }

 private:
  // Most intervals live within a block, of some tens of steps. Longer stretches have long lists, shorter ones many
  // nodes.
  static constexpr int kStretch = 32;
  static constexpr size_t kFanOut = 8;

  struct Node {
    Ranges always, taken;  // of intervals alive in all of its steps, but not of its parent; of all
  };
  void AddSet(const Ranges& ranges) {
    if (!ranges.empty()) sets_.emplace_back(ranges);
  }
  static void Cover(std::vector<Node>& nodes, size_t begin, size_t end, const Placed& placed) {
    for (size_t n = begin; n < end; ++n) {
      nodes[n].always.Add(placed.offset, placed.end);
      nodes[n].taken.Add(placed.offset, placed.end);
    }
  }
  void AddToSome(size_t stretch, const Placed& placed) {
    std::vector<Placed>& some = some_[stretch];
    const auto at = std::upper_bound(some.begin(), some.end(), placed.offset,
                                     [](Bytes offset, const Placed& p) { return offset < p.offset; });
    some.insert(at, placed);
  }

  // `seen`: the number of `some` already passed: they do not overlap higher offsets either.
  static Bytes LowestInSome(const std::vector<Placed>& some, Bytes offset, const Interval& x, Bytes size,
                            size_t* seen) {
    for (; *seen < some.size() && some[*seen].offset < offset + size; ++*seen) {
      if (some[*seen].Meets(x)) offset = std::max(offset, some[*seen].end);
    }
    return offset;
  }
  static size_t StretchOf(int step) { return static_cast<size_t>(step / kStretch); }

  std::vector<std::vector<Node>> levels_;  // from stretches up
  std::vector<std::vector<Placed>> some_;  // per stretch: alive in some of its steps, by offset
  std::vector<Ranges::Search> sets_;       // of the query at hand
};

// If the span is within 1/kTight of the lower bound, no other order is tried.
constexpr int64_t kTight = 1000;
// If the span is within 1/kGood of the lower bound, placing scratch last wasted little.
constexpr int64_t kGood = 100;

// Packings of a step waste about this part of the peak. A search whose guess of what is missing leaves it out tries
// once more.
constexpr int64_t kWasted = 100;

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

// Places intervals one after another, each at the lowest offset where it fits; returns the bytes spanned. Gives up once
// that is `most` or more.
Bytes PlaceInOrder(std::span<Interval> intervals, const std::vector<size_t>& order, int steps, Bytes most) {
  Shelf shelf(steps);
  Bytes top{};
  for (const size_t i : order) {
    Interval& x = intervals[i];
    const Bytes size = AlignUp(x.size, kAlignment);
    x.offset = shelf.LowestFor(x, size);
    top = std::max(top, x.offset + size);
    if (top >= most) break;
    shelf.Add(x, size);
  }
  return top;
}

}  // namespace

Bytes PackIntervals(std::span<Interval> intervals, const PackingGoal& goal) {
  int steps = 0;
  for (const Interval& x : intervals) steps = std::max(steps, x.end);
  const std::vector<int64_t> alive = AliveInSteps(intervals, steps);
  const Bytes bound{*std::max_element(alive.begin(), alive.end())};
  if (bound > goal.most) return bound + bound / kWasted;
  const auto is_within = [&](Bytes span, int64_t part) {
    return span.v - bound.v <= bound.v / part || span <= goal.enough;
  };
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
  std::vector<std::pair<double, size_t>> keys(intervals.size());
  std::array<std::vector<size_t>, std::size(kOrders)> sorted;  // by each key, largest first, equal ones as given
  std::vector<Bytes> best_offsets(intervals.size());
  std::optional<Bytes> best;
  for (const bool short_last : {true, false}) {
    for (size_t way = 0; way < sorted.size(); ++way) {
      if (sorted[way].empty()) {
        for (size_t i = 0; i < keys.size(); ++i) keys[i] = {-kOrders[way](intervals[i]), i};
        std::sort(keys.begin(), keys.end());
        sorted[way].resize(keys.size());
        std::transform(keys.begin(), keys.end(), sorted[way].begin(), [](const auto& k) { return k.second; });
      }
      order = sorted[way];
      if (short_last) std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !comes_last(i); });
      const Bytes span = PlaceInOrder(intervals, order, steps, best.value_or(Bytes{INT64_MAX}));
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
