#include "settings/cadence.h"

#include <gtest/gtest.h>

#include "settings/run_config.h"

namespace temper::cadence_test {
namespace {

// As TrainerState.compute_steps of transformers 4.57: math.ceil(max_steps * steps) below 1.
TEST(Cadence, APartOfTheRunIsRoundedUpAsInTransformers) {
  EXPECT_EQ(StepsBetween(0.1, 95), 10);
  EXPECT_EQ(StepsBetween(0.1, 100), 10);
  EXPECT_EQ(StepsBetween(0.001, 20), 1);
  EXPECT_EQ(StepsBetween(0.07, 100), 8) << "100 * 0.07 is 7.000000000000001";
  EXPECT_EQ(StepsBetween(1, 95), 1);
  EXPECT_EQ(StepsBetween(500, 95), 500);
  EXPECT_EQ(StepsBetween(0, 95), 0);
}

TEST(Cadence, CountWhatIsStillToCome) {
  EXPECT_EQ((Cadence{.steps = 10}).Times(1, 30, 7), 3);
  EXPECT_EQ((Cadence{.steps = 10}).Times(10, 30, 7), 3);
  EXPECT_EQ((Cadence{.steps = 10}).Times(11, 30, 7), 2);
  EXPECT_EQ((Cadence{.steps = 10}).Times(31, 30, 7), 0);
  EXPECT_EQ((Cadence{.by_epoch = true}).Times(1, 30, 7), 4);
  EXPECT_EQ(Cadence().Times(1, 30, 7), 0);
}

TEST(Cadence, EvaluationComesWithTheCheckpointsUnlessItSaysOtherwise) {
  RunConfig c;
  c.data.eval_fraction = 0.1;
  const auto resolved = [&] {
    const Result<ResolvedRun> run = Resolve(c, {.today = "2026-01-01"});
    EXPECT_TRUE(run.ok()) << run.status().message();
    return CadenceOf(run->config, 100);
  };
  c.output.save_steps = 0.25;
  EXPECT_EQ(resolved().saving.steps, 25);
  EXPECT_EQ(resolved().evaluation->steps, 25);
  c.output.save_strategy = CadenceStrategy::kEpoch;
  EXPECT_TRUE(resolved().saving.by_epoch && resolved().evaluation->by_epoch);
  c.output.eval_steps = 7;
  EXPECT_TRUE(resolved().saving.by_epoch);
  EXPECT_EQ(resolved().evaluation->steps, 7);
  c.output.save_strategy = CadenceStrategy::kNo;
  c.output.eval_steps.reset();
  ASSERT_TRUE(resolved().evaluation.has_value()) << "at the end";
  EXPECT_EQ(resolved().evaluation->steps + resolved().saving.steps, 0);
  c.output.eval_strategy = CadenceStrategy::kNo;
  EXPECT_FALSE(resolved().evaluation.has_value());
}

TEST(Cadence, ABestCheckpointNeedsEvaluationsWhereTheRoundedPartsMeet) {
  RunConfig c;
  c.data.eval_fraction = 0.1;
  c.output.load_best_model_at_end = true;
  c.output.eval_steps = 0.1;
  c.output.save_steps = 0.2;
  EXPECT_TRUE(CheckCadence(c, 100).ok());
  EXPECT_FALSE(CheckCadence(c, 95).ok()) << "every 19 steps, and every 10";
}

}  // namespace
}  // namespace temper::cadence_test
