#include "plan/candidate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace temper::candidate_test {
namespace {

TEST(StepFigures, OfManyBlocksAreExtrapolatedLinearly) {
  const StepFigures low{.bytes = 10, .seconds = 1, .flops_per_token = 3, .activations = 2, .optimizer = 6},
      high{.bytes = 14, .seconds = 2, .flops_per_token = 5, .activations = 4, .optimizer = 10};
  const auto with = [&](double blocks) { return Extrapolated(low, 2, std::vector{MoreOfKind{high, blocks}}); };
  const StepFigures f = with(6);
  EXPECT_EQ(f.bytes, 22);
  EXPECT_EQ(f.seconds, 4);
  EXPECT_EQ(f.flops_per_token, 9);
  EXPECT_EQ(f.activations, 8);
  EXPECT_EQ(f.optimizer, 18);
  EXPECT_EQ(with(-2).bytes, 6) << "a stage of fewer blocks";
}

TEST(StepFigures, OfSeveralKindsOfBlocksAreExtrapolatedByKind) {
  const StepFigures low{.bytes = 10, .seconds = 1}, wide{.bytes = 14, .seconds = 2}, narrow{.bytes = 11, .seconds = 3};
  const StepFigures f = Extrapolated(low, 2, std::vector{MoreOfKind{wide, 4}, MoreOfKind{narrow, 10}});
  EXPECT_EQ(f.bytes, 10 + 4 * 2 + 10 * 0.5);
  EXPECT_EQ(f.seconds, 1 + 4 * 0.5 + 10 * 1);
}

TEST(StepFigures, StagesAddTheBubbleAndKeepMicroBatchesInFlight) {
  const StepFigures stage{.bytes = 100, .seconds = 8, .activations = 10};
  EXPECT_EQ(InStages(stage, 4, 8).seconds, 8.0 * 11 / 8) << "the bubble of 1F1B";
  EXPECT_EQ(InStages(stage, 4, 8).bytes, 130);
  EXPECT_EQ(InStages(stage, 4, 2).bytes, 110) << "no more than there are micro-batches";
  EXPECT_EQ(InStages(stage, 1, 8).seconds, 8);
}

TEST(StepFigures, SpillMovesStatesOncePerStepAndWeightsTwicePerMicroBatch) {
  const LinkRates links{.host_to_device = 6, .device_to_host = 4};
  const StepFigures f{.optimizer = 24};
  // 12 of 24 bytes of states: 4 bytes of gradients go, 2 of weights come.
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, 12, 3, links, 0).v, 4.0 / 4 + 2.0 / 6);
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, 12, 3, links, 28).v, 4.0 / 4 + 2.0 / 6 + 1) << "12 read, 12 written, 4 read";
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, 30, 3, links, 0).v, 8.0 / 4 + 4.0 / 6 + 6 * 2 * 3 / 6.0);
}

TEST(Candidates, ThoseThatFitOnDevicesPrecedeThoseThatNeedAHost) {
  const Candidate two{.devices = 2, .fits = true, .tokens_per_second = 100},
      four{.devices = 4, .fits = true, .tokens_per_second = 300},
      one_with_host{.devices = 1, .host = GiB(1), .fits = true, .tokens_per_second = 5},
      too_large{.devices = 1, .tokens_per_second = 900};
  std::vector<Candidate> all = {too_large, one_with_host, four, two};
  const auto order = [&](SearchGoal goal) {
    std::sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) { return IsBetter(a, b, goal); });
    std::vector<double> speeds;
    for (const Candidate& c : all) speeds.push_back(c.tokens_per_second);
    return speeds;
  };
  EXPECT_EQ(order(SearchGoal::kFewestDevices), (std::vector<double>{100, 300, 5, 900}));
  EXPECT_EQ(order(SearchGoal::kThroughput), (std::vector<double>{300, 100, 5, 900}));
}

}  // namespace
}  // namespace temper::candidate_test
