#include "compile/layout/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "program/program.h"

namespace temper::pack_test {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  int operator()(int n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

void ExpectDisjoint(const std::vector<Interval>& intervals, Bytes span) {
  for (size_t a = 0; a < intervals.size(); ++a) {
    const Interval& x = intervals[a];
    ASSERT_GE(x.offset.v, 0);
    ASSERT_EQ(x.offset.v % kAlignment, 0);
    ASSERT_LE(x.offset + x.size, span);
    for (size_t b = 0; b < a; ++b) {
      const Interval& y = intervals[b];
      const bool same_time = x.begin <= y.end && y.begin <= x.end;
      const bool same_place = x.offset < y.offset + y.size && y.offset < x.offset + x.size;
      ASSERT_FALSE(same_time && same_place)
          << "[" << x.begin << ", " << x.end << "] and [" << y.begin << ", " << y.end << "]";
    }
  }
}

// The peak of live bytes: no packing can span less.
Bytes MostAlive(const std::vector<Interval>& intervals, int steps) {
  Bytes most{};
  for (int step = 0; step < steps; ++step) {
    Bytes alive{};
    for (const Interval& x : intervals) {
      if (x.begin <= step && step <= x.end) alive += AlignUp(x.size, kAlignment);
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST(PackIntervals, IntervalsAliveTogetherNeverOverlap) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Draws draw(seed);
    const int steps = 1 + draw(60);
    std::vector<Interval> intervals(static_cast<size_t>(draw(120)));
    for (Interval& x : intervals) {
      x.begin = draw(steps);
      x.end = x.begin + draw(steps - x.begin);
      x.size = {1 + draw(draw(4) == 0 ? 100000 : 500)};
    }
    const Bytes span = PackIntervals(intervals);
    ExpectDisjoint(intervals, span);
    const Bytes bound = MostAlive(intervals, steps);
    EXPECT_GE(span, bound);
    // First fit by size is not optimal, but on random lifetimes it stays well within this bound.
    EXPECT_LE(span.v, bound.v * 3 / 2 + kAlignment) << "seed " << seed;
  }
}

// The specification of PackIntervals: in one of its orders, each interval at the lowest offset that overlaps no placed
// interval of a common step. Intervals of one step in which at most nine tenths of the peak is alive come last, or, if
// that wastes a percent, in their turn. Returns the bytes spanned.
template <class Key>
Bytes PlainRule(std::vector<Interval>* intervals, bool short_last, const Key& key) {
  std::vector<size_t> order;
  for (size_t i = 0; i < intervals->size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key((*intervals)[a]) > key((*intervals)[b]); });
  int steps = 0;
  for (const Interval& x : *intervals) steps = std::max(steps, x.end + 1);
  const double most = static_cast<double>(MostAlive(*intervals, steps).v);
  std::stable_partition(order.begin(), order.end(), [&](size_t i) {
    const Interval& x = (*intervals)[i];
    if (!short_last || x.begin != x.end) return true;
    int64_t alive = 0;
    for (const Interval& y : *intervals) {
      if (y.begin <= x.begin && x.begin <= y.end) alive += AlignUp(y.size, kAlignment).v;
    }
    return static_cast<double>(alive) > 0.9 * most;
  });
  std::vector<const Interval*> placed;
  Bytes top{};
  for (const size_t i : order) {
    Interval& x = (*intervals)[i];
    x.offset = {};
    for (bool moved = true; moved;) {
      moved = false;
      for (const Interval* y : placed) {
        const bool same_time = x.begin <= y->end && y->begin <= x.end;
        const Bytes y_end = y->offset + AlignUp(y->size, kAlignment);
        if (!same_time || y_end <= x.offset || x.offset + AlignUp(x.size, kAlignment) <= y->offset) continue;
        x.offset = y_end;
        moved = true;
      }
    }
    placed.push_back(&x);
    top = std::max(top, x.offset + AlignUp(x.size, kAlignment));
  }
  return top;
}

TEST(PackIntervals, SpansNoMoreThanTheTightestSimpleOrder) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draws draw(seed);
    const int steps = 1 + draw(1500);
    std::vector<Interval> intervals(static_cast<size_t>(draw(200)));
    for (Interval& x : intervals) {
      x.begin = draw(steps);
      // Within one stretch of steps, over a few, and over most.
      const int longest = draw(3) == 0 ? steps : draw(2) == 0 ? 300 : 20;
      x.end = std::min(steps - 1, x.begin + draw(longest));
      x.size = {1 + draw(draw(4) == 0 ? 100000 : 500)};
    }
    std::vector<Interval> plain = intervals;
    Bytes least{INT64_MAX};
    for (const bool last : {true, false}) {
      const auto try_key = [&](const auto& key) { least = std::min(least, PlainRule(&plain, last, key)); };
      try_key([](const Interval& x) { return x.size.v; });
      try_key([](const Interval& x) { return x.size.v * (x.end - x.begin + 1); });
      try_key([](const Interval& x) { return x.end - x.begin; });
    }
    const Bytes span = PackIntervals(intervals);
    ExpectDisjoint(intervals, span);
    EXPECT_GE(span, least) << "seed " << seed;
    EXPECT_LE(span, std::max(least, MostAlive(intervals, steps) * 101 / 100)) << "seed " << seed;
  }
}

// A step: activations made going forward, consumed in reverse going back, each with short-lived scratch around it.
TEST(PackIntervals, IsTightOnNestedLifetimes) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Draws draw(seed);
    const int layers = 5 + draw(40), steps = 4 * layers;
    std::vector<Interval> intervals;
    for (int i = 0; i < layers; ++i) {
      intervals.push_back({2 * i, steps - 1 - 2 * i, {1000 + draw(50000)}, {}});
      intervals.push_back({2 * i, 2 * i + 1, {1000 + draw(5000)}, {}});
    }
    const Bytes span = PackIntervals(intervals);
    ExpectDisjoint(intervals, span);
    EXPECT_LE(static_cast<double>(span.v), 1.05 * static_cast<double>(MostAlive(intervals, steps).v))
        << "seed " << seed;
  }
}

TEST(PackIntervals, ReusesMemoryAndDependsOnNothingElse) {
  std::vector<Interval> chain;
  for (int i = 0; i < 100; ++i) chain.push_back({i, i, {4096}, {}});
  EXPECT_EQ(PackIntervals(chain).v, 4096);
  std::vector<Interval> together;
  for (int i = 0; i < 10; ++i) together.push_back({0, 5, {100}, {}});
  EXPECT_EQ(PackIntervals(together).v, 10 * 128) << "each is rounded up to the alignment";
  std::vector<Interval> again = together;
  PackIntervals(again);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].offset, together[i].offset);
  std::vector<Interval> none;
  EXPECT_EQ(PackIntervals(none).v, 0);
}

TEST(PackIntervals, WhatCannotFitIsEstimatedAndGetsNoOffsets) {
  std::vector<Interval> together;
  for (int i = 0; i < 10; ++i) together.push_back({0, 5, {4096}, {-1}});
  const Bytes span = PackIntervals(together, {.most = {10 * 4096 - 1}});
  EXPECT_GE(span.v, 10 * 4096) << "so it shows that nothing fits";
  EXPECT_LE(span.v, 10 * 4096 * 1.02);
  for (const Interval& x : together) EXPECT_EQ(x.offset.v, -1);
  EXPECT_EQ(PackIntervals(together, {.most = {10 * 4096}}).v, 10 * 4096);
}

TEST(PackIntervals, AnyPackingThatIsEnoughIsAccepted) {
  std::mt19937 random(3);
  std::vector<Interval> loose;
  for (int i = 0; i < 300; ++i) {
    const int begin = static_cast<int>(random() % 1000), steps = static_cast<int>(random() % 60);
    loose.push_back({begin, begin + steps, {128 * static_cast<int64_t>(1 + random() % 100)}, {}});
  }
  std::vector<Interval> tight = loose;
  const Bytes least = PackIntervals(tight);
  const Bytes span = PackIntervals(loose, {.enough = least * 2});
  ExpectDisjoint(loose, span);
  EXPECT_GT(span, least) << "the first order wastes some bytes";
  EXPECT_LE(span, least * 2);
}

}  // namespace
}  // namespace temper::pack_test
