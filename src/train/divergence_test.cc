#include "train/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/philox.h"

namespace temper::divergence_test {
namespace {

// Takes loss(step) for steps from 1; the step at which the run had diverged, or 0. Two steps of warmup are without
// effect, as in a run with warmup.
int64_t DivergedAt(int64_t steps, const std::function<double(int64_t)>& loss, int64_t unmoved_steps = 2) {
  Divergence d;
  for (int64_t step = 1; step <= steps; ++step) {
    d.Take(loss(step), step < unmoved_steps ? 0 : 1);
    if (d.diverged()) return step;
  }
  return 0;
}

TEST(Divergence, ALossThatRisesAndStaysThereIsOne) {
  const auto noise = [](int64_t step) {
    return 0.3 * NormalAt({.seed = 1, .name_hash = 2}, static_cast<uint64_t>(step));
  };
  EXPECT_EQ(DivergedAt(200, [&](int64_t step) { return (step < 100 ? 2.0 : 5.0) + noise(step); }), 119);
  // Without bound.
  const int64_t at = DivergedAt(200, [](int64_t step) { return 7.6 * std::pow(1.2, static_cast<double>(step)); });
  EXPECT_GT(at, 0);
  EXPECT_LE(at, 30);
}

// Losses of real runs with a much too high learning rate.
TEST(Divergence, WithinTheFirstStepsIsOneToo) {
  const std::vector<double> at_once = {8.34, 17.8, 16.48, 12};
  EXPECT_EQ(DivergedAt(
                60, [&](int64_t step) { return at_once[std::min<size_t>(static_cast<size_t>(step), 4) - 1]; }, 1),
            21);
  EXPECT_EQ(DivergedAt(60, [](int64_t step) { return step < 3 ? 1.2 : 6.8; }), 22);
}

TEST(Divergence, ASpikeThatTheRunRecoversFromIsNone) {
  const std::vector<double> spike = {8.34, 8.81, 7.15, 15.08, 22.02, 17.5, 13.6, 10.48, 8.46, 9.03, 8.33};
  EXPECT_EQ(
      DivergedAt(200,
                 [&](int64_t step) { return spike[std::min<size_t>(static_cast<size_t>(step), spike.size()) - 1]; }),
      0);
  EXPECT_EQ(DivergedAt(200, [](int64_t step) { return step >= 50 && step < 69 ? 30 : 2; }), 0);
}

// Training on starts with a low loss, and a new optimizer raises it for a while.
TEST(Divergence, ALowStartLeavesRoom) {
  EXPECT_EQ(DivergedAt(300, [](int64_t step) { return 0.05 + (step > 20 ? 0.2 : 0.0); }), 0);
  EXPECT_EQ(DivergedAt(300, [](int64_t step) { return 1.2 + (step > 20 ? 0.3 : 0.0); }), 0);
}

// A step of one short answer: losses between nearly nothing and ten times the mean, and no progress at all.
TEST(Divergence, NoiseOfSmallBatchesIsNone) {
  const auto alarms = [](const std::function<double(double)>& loss) {
    int alarms = 0;
    for (uint64_t run = 0; run < 300; ++run) {
      const RngKey key{.seed = run, .name_hash = 3};
      alarms += DivergedAt(2000, [&](int64_t step) { return loss(NormalAt(key, static_cast<uint64_t>(step))); }) > 0;
    }
    return alarms;
  };
  EXPECT_EQ(alarms([](double z) { return 2 * std::exp(z); }), 0);
  EXPECT_EQ(alarms([](double z) { return std::max(0.0, 2 + 0.7 * z); }), 0);
  EXPECT_EQ(alarms([](double z) { return 2 + 0.02 * z; }), 0);
}

TEST(Divergence, WarnsOnceAndThenRarely) {
  Divergence d;
  std::vector<int64_t> warned;
  for (int64_t step = 1; step <= 3000; ++step) {
    d.Take(step == 1 ? 2 : 9, 1);
    if (d.WarningDue()) warned.push_back(step);
  }
  EXPECT_EQ(warned, (std::vector<int64_t>{21, 201, 2001}));
  EXPECT_EQ(d.Describe(3000), "its loss began at 2.00, and from step 2 on it was above 3.00");
}

}  // namespace
}  // namespace temper::divergence_test
