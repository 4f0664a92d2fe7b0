#include "compile/run/step_figures.h"

#include <gtest/gtest.h>

#include <vector>

namespace temper::step_figures_test {
namespace {

TEST(StepFigures, OfManyBlocksAreExtrapolatedLinearly) {
  const StepFigures low{
      .bytes = 10, .seconds = 1, .flops_per_token = 3, .activations = 2, .gradients = 1, .optimizer = 6},
      high{.bytes = 14, .seconds = 2, .flops_per_token = 5, .activations = 4, .gradients = 3, .optimizer = 10};
  const auto with = [&](double blocks) { return Extrapolated(low, 2, std::vector{MoreOfKind{high, blocks}}); };
  const StepFigures f = with(6);
  EXPECT_EQ(f.bytes, 22);
  EXPECT_EQ(f.seconds, 4);
  EXPECT_EQ(f.flops_per_token, 9);
  EXPECT_EQ(f.activations, 8);
  EXPECT_EQ(f.gradients, 7);
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
  const LinkRates links{.host_to_device = 6, .device_to_host = 4, .disk_read = 2};
  const StepFigures f{.optimizer = 24};
  // 12 of 24 bytes of states: 4 bytes of gradients go, 2 of weights come.
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, {12}, {}, 3, links, 0).v, 4.0 / 4 + 2.0 / 6);
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, {12}, {}, 3, links, 28).v, 4.0 / 4 + 2.0 / 6 + 1) << "12 read, 12 written, 4 read";
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, {30}, {}, 3, links, 0).v, 8.0 / 4 + 4.0 / 6 + 6 * 2 * 3 / 6.0);
  EXPECT_DOUBLE_EQ(SecondsOfSpill(f, {40}, {10}, 3, links, 0).v,
                   SecondsOfSpill(f, {30}, {}, 3, links, 0).v + 10 * 2 * 3 / 2.0);
}

}  // namespace
}  // namespace temper::step_figures_test
