#include "compile/estimate/move_lanes.h"

#include <gtest/gtest.h>

#include <random>

namespace temper::move_lanes_test {
namespace {

constexpr size_t kFetches = kFirstMoveLane, kEvictions = kFirstMoveLane + 1, kDiskReads = kFirstMoveLane + 2;

TEST(MoveLanes, WithoutContentionMovesRunAtFullSpeedBesideKernels) {
  MoveLanes lanes{LinkRates()};
  lanes.Issue(kFetches, {2});
  lanes.Issue(kFetches, {3});
  EXPECT_DOUBLE_EQ(lanes.Compute({1}).v, 1);
  EXPECT_DOUBLE_EQ(lanes.Wait(kFetches, 1).v, 1);
  EXPECT_DOUBLE_EQ(lanes.Compute({10}).v, 10);
  EXPECT_DOUBLE_EQ(lanes.Wait(kFetches, 2).v, 0);
  EXPECT_DOUBLE_EQ(lanes.SpanOf(kFetches, 0).end.v, 2);
  EXPECT_DOUBLE_EQ(lanes.SpanOf(kFetches, 1).begin.v, 2);
  EXPECT_DOUBLE_EQ(lanes.SpanOf(kFetches, 1).end.v, 5);
}

// A copy of 2 s takes 3 beside kernels, which take 1.6 times as long for that time.
TEST(MoveLanes, UnderContentionKernelsAndMovesSlowDown) {
  MoveLanes lanes{LinkRates{.copies = {.slows = 0.6, .slowed = 0.5}}};
  lanes.Issue(kEvictions, {2});
  // 3 s beside the copy do what kernels do alone in 1.875; the rest runs at full speed.
  EXPECT_NEAR(lanes.Compute({5}).v, 3 + (5 - 3 / 1.6), 1e-12);
  EXPECT_NEAR(lanes.SpanOf(kEvictions, 0).end.v, 3, 1e-12);
}

// Half of a copy is done beside kernels, the rest while nothing runs.
TEST(MoveLanes, AMoveRunsAtFullSpeedDuringAWait) {
  MoveLanes lanes{LinkRates{.copies = {.slows = 0.6, .slowed = 0.5}}};
  lanes.Issue(kFetches, {2});
  EXPECT_NEAR(lanes.Compute({1.5 / 1.6}).v, 1.5, 1e-12);
  EXPECT_NEAR(lanes.Wait(kFetches, 1).v, 1, 1e-12);
  EXPECT_NEAR(lanes.SpanOf(kFetches, 0).end.v, 2.5, 1e-12);
  EXPECT_DOUBLE_EQ(lanes.Compute({1}).v, 1) << "no move is left";
}

TEST(MoveLanes, ContentionOfSeveralLanesAddsUp) {
  MoveLanes lanes{LinkRates{.copies = {.slows = 0.5}, .disk = {.slows = 0.25}}};
  lanes.Issue(kFetches, {2});
  lanes.Issue(kEvictions, {2});
  lanes.Issue(kDiskReads, {100});
  EXPECT_NEAR(lanes.Compute({1}).v, 2 + (1 - 2 / 2.25) * 1.25, 1e-12);
  lanes.Idle({90});
  EXPECT_NEAR(lanes.Wait(kDiskReads, 1).v, 100 - 90 - 2 - (1 - 2 / 2.25) * 1.25, 1e-9);
}

TEST(MoveLanes, AMoveWithoutBytesIsDoneWhenItIsIssued) {
  MoveLanes lanes{LinkRates{.copies = {.slows = 1, .slowed = 1}}};
  lanes.Issue(kFetches, {0});
  EXPECT_DOUBLE_EQ(lanes.Wait(kFetches, 1).v, 0);
  EXPECT_DOUBLE_EQ(lanes.Compute({1}).v, 1);
}

// Moves and kernels in a random order never take less; the bound is reached where nothing waits.
TEST(MoveLanes, NoOrderAddsLessThanTheLeast) {
  std::mt19937 random(7);
  const auto upto = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const LinkRates links{.copies = {.slows = upto(1), .slowed = upto(2)},
                          .disk = {.slows = upto(2), .slowed = upto(1)}};
    MoveLanes lanes{links};
    MoveSeconds moves;
    double kernels = 0, idle = 0, step = 0;
    const auto kinds = static_cast<size_t>(1 + upto(3.99));
    for (int event = 0; event < 60; ++event) {
      const double takes = upto(1);
      const size_t kind = static_cast<size_t>(upto(static_cast<double>(kinds) - 0.01));
      if (event % 3 == 0) {
        lanes.Issue(kFirstMoveLane + kind, {takes});
        moves[kind] += {takes};
      } else if (event % 7 == 1) {
        step += takes;
        idle += takes;
        lanes.Idle({takes});
      } else {
        kernels += takes;
        step += lanes.Compute({takes}).v;
      }
      if (event % 11 == 5) step += lanes.Wait(kFirstMoveLane + kind, lanes.issued(kFirstMoveLane + kind)).v;
    }
    for (size_t k = 0; k < MoveLanes::kLanes; ++k) {
      step += lanes.Wait(kFirstMoveLane + k, lanes.issued(kFirstMoveLane + k)).v;
    }
    EXPECT_LE(kernels + LeastAdded(moves, {idle}, links).v, step * (1 + 1e-9)) << "round " << round;
  }
  const LinkRates links{.disk = {.slows = 0.6, .slowed = 0.5}};
  MoveLanes lanes{links};
  lanes.Issue(kDiskReads, {2});
  MoveSeconds moves;
  moves[kDiskReads - kFirstMoveLane] = {2};
  EXPECT_NEAR(lanes.Compute({100}).v, 100 + LeastAdded(moves, {}, links).v, 1e-9);
}

}  // namespace
}  // namespace temper::move_lanes_test
