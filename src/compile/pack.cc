#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "compile/place.h"

namespace temper {
namespace {

// An interval that has its place.
struct Placed {
  Bytes offset, end;
  int first_step, last_step;
};

bool Below(Bytes offset, const Placed& p) {
  return offset < p.offset;
}

// Placed intervals by offset, so that those that share steps with another are found soon: of a stretch of steps, those
// alive in it; and all.
class Shelf {
 public:
  explicit Shelf(int steps) : alive_(static_cast<size_t>(steps / kStretch + 1)) {}

  // The lowest offset at which `x` meets no placed interval that shares a step with it.
  Bytes LowestFor(const Interval& x, Bytes size) {
    const size_t first = StretchOf(x.begin), last = StretchOf(x.end);
    if (first == last) return LowestAmong(alive_[first], x, size);
    if (last > first + 1) return LowestAmong(all_, x, size);
    // What lies in both stretches comes twice, which a walk does not mind.
    merged_.clear();
    std::merge(alive_[first].begin(), alive_[first].end(), alive_[last].begin(), alive_[last].end(),
               std::back_inserter(merged_), [](const Placed& p, const Placed& q) { return p.offset < q.offset; });
    return LowestAmong(merged_, x, size);
  }

  // `longer_come`: intervals of more than two stretches may follow.
  void Add(const Interval& x, Bytes size, bool longer_come) {
    const Placed placed{x.offset, x.offset + size, x.begin, x.end};
    const auto insert = [&placed](std::vector<Placed>* list) {
      list->insert(std::upper_bound(list->begin(), list->end(), placed.offset, Below), placed);
    };
    if (longer_come) insert(&all_);
    for (size_t s = StretchOf(x.begin); s <= StretchOf(x.end); ++s) insert(&alive_[s]);
  }

 private:
  // Most intervals live within a block, of some tens of steps.
  static constexpr int kStretch = 64;

  static size_t StretchOf(int step) { return static_cast<size_t>(step / kStretch); }

  // `list` comes in order of offset: walk up until the gap before the next conflicting one is wide enough.
  static Bytes LowestAmong(const std::vector<Placed>& list, const Interval& x, Bytes size) {
    Bytes offset{};
    for (const Placed& other : list) {
      if (other.last_step < x.begin || x.end < other.first_step) continue;
      if (other.offset >= offset + size) break;
      offset = std::max(offset, other.end);
    }
    return offset;
  }

  std::vector<Placed> all_, merged_;        // all_: but those after which no longer ones came
  std::vector<std::vector<Placed>> alive_;  // per stretch
};

// Within one part in so many of what no packing can beat, no other order is tried.
constexpr int64_t kTight = 1000;
// Within one part in so many, what was placed last had room enough.
constexpr int64_t kGood = 100;

// What is there for one step only (scratch), where no more than this part of the most is alive, finds room beside the
// rest whatever that does: it is placed last.
constexpr double kRoomy = 0.9;

// What is alive in each step, rounded up as it will be placed.
std::vector<int64_t> AliveInSteps(std::span<const Interval> intervals, int steps) {
  std::vector<int64_t> alive(static_cast<size_t>(steps) + 2, 0);  // first: by how much it changes
  for (const Interval& x : intervals) {
    const int64_t size = AlignUp(x.size, kAlignment).v;
    alive[static_cast<size_t>(x.begin)] += size;
    alive[static_cast<size_t>(x.end) + 1] -= size;
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  return alive;
}

// Places intervals one after another, each at the lowest offset where it fits; returns the bytes spanned. Those from
// number `first_short` of the order on are there for one step.
Bytes PlaceInOrder(std::span<Interval> intervals, const std::vector<size_t>& order, size_t first_short, int steps) {
  Shelf shelf(steps);
  Bytes top{};
  for (size_t k = 0; k < order.size(); ++k) {
    Interval& x = intervals[order[k]];
    const Bytes size = AlignUp(x.size, kAlignment);
    x.offset = shelf.LowestFor(x, size);
    top = std::max(top, x.offset + size);
    shelf.Add(x, size, k < first_short);
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
  // Each order has shapes of steps that it packs a percent looser than another does.
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
      auto first_short = order.end();
      if (short_last) {
        first_short = std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !comes_last(i); });
      }
      const Bytes span = PlaceInOrder(intervals, order, static_cast<size_t>(first_short - order.begin()), steps);
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
