#include "run/train_on.h"

#include <gtest/gtest.h>

namespace temper::train_on_test {
namespace {

RunConfig Resolved(double learning_rate, int64_t max_steps) {
  RunConfig config;
  config.batch.auto_cut = false;
  config.optimizer.learning_rate = learning_rate;
  config.length.lr_scheduler_type = ScheduleKind::kLinear;
  config.length.max_steps = max_steps;
  config.length.warmup_steps = 0;
  return config;
}

RunState At(int64_t step, int64_t epoch, int64_t next_row) {
  return {.step = step, .sampler = {.seed = 42, .epoch = epoch, .next_row = next_row}};
}

using Lines = std::vector<std::string>;

TEST(TrainOn, SaysNothingWhereNothingChanges) {
  RunConfig before = Resolved(1e-3, 10), now = before;
  now.output.output_dir = "moved";
  before.data.eval_data = {{.path = "e.jsonl"}};
  now.data.eval_data = {{.path = "moved/e.jsonl"}};
  EXPECT_EQ(DescribeTrainOn(At(5, 0, 40), 100, {before, 10, 8}, {now, 10, 8}), Lines());
}

TEST(TrainOn, SaysThatTheSameRowsComeInOtherMicroBatches) {
  const RunConfig before = Resolved(1e-3, 10);
  RunConfig now = before;
  now.batch.per_device_train_batch_size = 2;
  now.batch.gradient_accumulation_steps = 4;
  EXPECT_EQ(DescribeTrainOn(At(5, 0, 40), 100, {before, 10, 8}, {now, 10, 8}),
            (Lines{"per_device_train_batch_size 1 -> 2", "gradient_accumulation_steps 8 -> 4",
                   "a step has the same 8 rows in other micro-batches: sums are rounded in another order"}));
}

TEST(TrainOn, SaysWhatTheScheduleIsFromWhichStep) {
  const RunConfig before = Resolved(1e-3, 10);
  RunConfig now = Resolved(2e-3, 20);
  EXPECT_EQ(DescribeTrainOn(At(5, 0, 40), 100, {before, 10, 8}, {now, 20, 8}),
            (Lines{"max_steps 10 -> 20", "learning_rate 0.001 -> 0.002",
                   "the schedule is that of a run of 20 steps with these settings: learning rate 0.0015 in step 6, not "
                   "0.0005"}));
  now.length.warmup_steps = 12;
  EXPECT_EQ(DescribeTrainOn(At(10, 0, 80), 100, {before, 10, 8}, {now, 20, 8}).back(),
            "the schedule is that of a run of 20 steps with these settings: learning rate 0.001667 in step 11 (the old "
            "one ended with step 10), with 2 of 12 warmup steps left");
}

TEST(TrainOn, SaysAtWhichRowABatchOfAnotherSizeGoesOn) {
  RunConfig before = Resolved(1e-3, 10), now = before;
  before.length.lr_scheduler_type = now.length.lr_scheduler_type = ScheduleKind::kConstant;
  now.batch.gradient_accumulation_steps = 16;
  EXPECT_EQ(DescribeTrainOn(At(5, 1, 40), 100, {before, 10, 8}, {now, 10, 16}),
            (Lines{"gradient_accumulation_steps 8 -> 16",
                   "a step has 16 rows, not 8; the next row is 41 of 100 in epoch 2: none is left out and none comes "
                   "twice"}));
  EXPECT_NE(DescribeTrainOn(At(5, 1, 100), 100, {before, 10, 8}, {now, 10, 16}).back().find("1 of 100 in epoch 3"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::train_on_test
