#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "compile/place.h"

namespace temper {
namespace {

// An interval that has its place.
struct Placed {
  Bytes offset, end;
  int first_step, last_step;
  bool Meets(const Interval& x) const { return first_step <= x.end && x.begin <= last_step; }
};

// Bytes that are taken in all steps of a stretch.
struct Solid {
  Bytes offset, end;
};

// Placed intervals by offset, so that those that share steps with another are found soon: of a stretch of steps, those
// alive in it; and all.
class Shelf {
 public:
  explicit Shelf(int steps) : stretches_(static_cast<size_t>(steps / kStretch + 1)) {}

  // The lowest offset at which `x` meets no placed interval that shares a step with it.
  Bytes LowestFor(const Interval& x, Bytes size) const {
    if (IsLong(x)) return LowestAmong(x, size, {&all_, nullptr}, {nullptr, nullptr});
    // What lies in both stretches comes twice, which a walk does not mind.
    const Stretch &first = stretches_[StretchOf(x.begin)], &last = stretches_[StretchOf(x.end)];
    if (&first == &last) return LowestAmong(x, size, {&first.alive, nullptr}, {&first.solid, nullptr});
    return LowestAmong(x, size, {&first.alive, &last.alive}, {&first.solid, &last.solid});
  }

  // `longer_come`: intervals for which IsLong may follow.
  void Add(const Interval& x, Bytes size, bool longer_come) {
    const Placed placed{x.offset, x.offset + size, x.begin, x.end};
    if (longer_come) Insert(placed, &all_);
    for (size_t s = StretchOf(x.begin); s <= StretchOf(x.end); ++s) {
      const int begin = static_cast<int>(s) * kStretch;
      if (x.begin <= begin && begin + kStretch - 1 <= x.end) {
        InsertSolid({placed.offset, placed.end}, &stretches_[s].solid);
      } else {
        Insert(placed, &stretches_[s].alive);
      }
    }
  }

  // Of more than two stretches.
  static bool IsLong(const Interval& x) { return StretchOf(x.end) > StretchOf(x.begin) + 1; }

 private:
  // Most intervals live within a block, of some tens of steps.
  static constexpr int kStretch = 64;

  struct Stretch {
    std::vector<Placed> alive;  // in some of its steps
    std::vector<Solid> solid;   // of those that are alive in all: what touches is one
  };

  static size_t StretchOf(int step) { return static_cast<size_t>(step / kStretch); }

  static void Insert(const Placed& placed, std::vector<Placed>* list) {
    const auto at = std::upper_bound(list->begin(), list->end(), placed.offset,
                                     [](Bytes offset, const Placed& p) { return offset < p.offset; });
    list->insert(at, placed);
  }

  static void InsertSolid(Solid solid, std::vector<Solid>* list) {
    auto at = std::lower_bound(list->begin(), list->end(), solid.offset,
                               [](const Solid& s, Bytes offset) { return s.end < offset; });
    auto end = at;
    for (; end != list->end() && end->offset <= solid.end; ++end) {
      solid = {std::min(solid.offset, end->offset), std::max(solid.end, end->end)};
    }
    if (at == end) {
      list->insert(at, solid);
    } else {
      *at = solid;
      list->erase(at + 1, end);
    }
  }

  // The lists come in order of offset, and so are walked together: up, until the gap before the next that `x` meets is
  // wide enough.
  static Bytes LowestAmong(const Interval& x, Bytes size, std::array<const std::vector<Placed>*, 2> alive,
                           std::array<const std::vector<Solid>*, 2> solid) {
    size_t next_alive[2] = {}, next_solid[2] = {};
    Bytes offset{};
    for (;;) {
      std::optional<Solid> next;
      size_t* from = nullptr;
      const auto consider = [&](Bytes begin, Bytes end, size_t* index) {
        if (next && next->offset <= begin) return;
        next = {begin, end};
        from = index;
      };
      for (size_t k = 0; k < 2; ++k) {
        if (alive[k] != nullptr) {
          size_t& i = next_alive[k];
          while (i < alive[k]->size() && !(*alive[k])[i].Meets(x)) ++i;
          if (i < alive[k]->size()) consider((*alive[k])[i].offset, (*alive[k])[i].end, &i);
        }
        if (solid[k] != nullptr && next_solid[k] < solid[k]->size()) {
          consider((*solid[k])[next_solid[k]].offset, (*solid[k])[next_solid[k]].end, &next_solid[k]);
        }
      }
      if (!next || next->offset >= offset + size) return offset;
      offset = std::max(offset, next->end);
      ++*from;
    }
  }

  std::vector<Placed> all_;  // but those after which no longer ones came
  std::vector<Stretch> stretches_;
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

// Places intervals one after another, each at the lowest offset where it fits; returns the bytes spanned.
Bytes PlaceInOrder(std::span<Interval> intervals, const std::vector<size_t>& order, int steps) {
  Shelf shelf(steps);
  Bytes top{};
  const auto last_long =
      std::find_if(order.rbegin(), order.rend(), [&](size_t i) { return Shelf::IsLong(intervals[i]); });
  const auto longs_end = static_cast<size_t>(order.rend() - last_long);
  for (size_t k = 0; k < order.size(); ++k) {
    Interval& x = intervals[order[k]];
    const Bytes size = AlignUp(x.size, kAlignment);
    x.offset = shelf.LowestFor(x, size);
    top = std::max(top, x.offset + size);
    shelf.Add(x, size, /*longer_come=*/k < longs_end);
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
