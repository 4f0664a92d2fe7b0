#include "compile/run/batch_cut.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace temper::batch_cut_test {
namespace {

RunConfig Uncut(int64_t rows_of_step) {
  RunConfig config;
  config.batch.auto_cut = true;
  config.batch.gradient_accumulation_steps = rows_of_step;
  return config;
}

// An estimate from a table: seconds by rows per micro-batch; negative: does not fit; 0: not possible.
struct Table {
  std::map<int64_t, double> seconds;
  std::vector<int64_t> asked = {};

  EstimateCut estimate() {
    return [this](const RunConfig& config) -> Result<CutEstimate> {
      const RunConfig::Batch& batch = config.batch;
      EXPECT_FALSE(batch.auto_cut);
      EXPECT_EQ(batch.per_device_eval_batch_size, batch.per_device_train_batch_size);
      asked.push_back(batch.per_device_train_batch_size);
      const double time = seconds.at(batch.per_device_train_batch_size);
      if (time == 0) return Unsupported("no schedule has so few micro-batches");
      if (time < 0) return OutOfMemory("too many rows");
      return CutEstimate{.fits = true, .step = {time}};
    };
  }
};

TEST(BatchCut, TakesTheFastestMicroBatchAndKeepsTheRowsOfAStep) {
  Table table{{{1, 8.0}, {2, 4.2}, {4, 2.3}, {8, 1.5}}};
  const auto cut = ChooseBatchCut(Uncut(8), {.whole = table.estimate()});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rows, 8);
  EXPECT_EQ(cut->micro_batches, 1);
  EXPECT_EQ(cut->ToString(), "1 micro-batch of 8 rows, estimated 5.33 times as fast as 8 of 1 row");
  RunConfig config = Uncut(8);
  ApplyCut(*cut, &config);
  EXPECT_EQ(config.batch.per_device_train_batch_size, 8);
  EXPECT_EQ(config.batch.gradient_accumulation_steps, 1);
  EXPECT_EQ(config.batch.per_device_eval_batch_size, 8);
  EXPECT_FALSE(config.batch.auto_cut);
}

TEST(BatchCut, TakesTheFewestRowsOfEquallyFastOnes) {
  Table table{{{1, 2.0}, {2, 1.98}, {3, 1.97}, {6, 1.96}}};
  const auto cut = ChooseBatchCut(Uncut(6), {.whole = table.estimate()});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rows, 1);
  EXPECT_EQ(cut->ToString(), "6 micro-batches of 1 row");
  EXPECT_EQ(table.asked, (std::vector<int64_t>{1, 2, 3, 6})) << "only what divides a step's rows";
}

TEST(BatchCut, StopsWhereMemoryEndsOrAPipelineEmpties) {
  Table memory{{{1, 8.0}, {2, 4.2}, {4, -1}}};
  EXPECT_EQ(ChooseBatchCut(Uncut(16), {.whole = memory.estimate()})->rows, 2);
  EXPECT_EQ(memory.asked, (std::vector<int64_t>{1, 2, 4}));
  Table bubble{{{1, 3.0}, {2, 2.5}, {4, 3.1}}};
  EXPECT_EQ(ChooseBatchCut(Uncut(16), {.whole = bubble.estimate()})->rows, 2);
  EXPECT_EQ(bubble.asked, (std::vector<int64_t>{1, 2, 4}));
  Table gap{{{1, 3.0}, {2, 0}, {3, 1.0}, {6, 2.0}}};
  EXPECT_EQ(ChooseBatchCut(Uncut(6), {.whole = gap.estimate()})->rows, 3) << "a schedule without 3 micro-batches";
}

TEST(BatchCut, OfARunThatDoesNotFitIsItsError) {
  Table table{{{1, -1}}};
  const auto cut = ChooseBatchCut(Uncut(8), {.whole = table.estimate()});
  EXPECT_EQ(cut.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(table.asked, std::vector<int64_t>{1});
}

// What few blocks promise, by rows; negative: with values in farther tiers.
EstimateCut Promises(std::map<int64_t, double> seconds) {
  return [seconds = std::move(seconds)](const RunConfig& config) -> Result<CutEstimate> {
    const double time = seconds.at(config.batch.per_device_train_batch_size);
    return CutEstimate{.fits = true, .spills = time < 0, .step = {std::fabs(time)}};
  };
}

TEST(BatchCut, ThatFewBlocksPromiseIsCompiledWholeAndNoOther) {
  Table whole{{{4, 2.0}}};
  const auto cut =
      ChooseBatchCut(Uncut(8), {.whole = whole.estimate(), .quick = Promises({{1, 4}, {2, 3}, {4, 2}, {8, 2}})});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rows, 4);
  EXPECT_EQ(cut->gain, 2);
  EXPECT_EQ(whole.asked, std::vector<int64_t>{4});
}

TEST(BatchCut, ThatTakesMoreThanFewBlocksPromiseGivesWayToFewerRows) {
  Table whole{{{2, 3.0}, {4, -1}}};
  const auto promises = Promises({{1, 4}, {2, 3}, {4, 2}, {8, 2}});
  EXPECT_EQ(ChooseBatchCut(Uncut(8), {.whole = whole.estimate(), .quick = promises})->rows, 2);
  EXPECT_EQ(whole.asked, (std::vector<int64_t>{4, 2}));
  Table nothing{{{2, -1}, {4, -1}}};
  EXPECT_EQ(ChooseBatchCut(Uncut(8), {.whole = nothing.estimate(), .quick = promises})->ToString(),
            "8 micro-batches of 1 row");
}

TEST(BatchCut, ThatTakesMemoryFromOtherProgramsHasToGainMore) {
  Table table{{{1, 2.0}, {2, 1.9}, {4, 1.85}}}, faster{{{1, 2.0}, {2, 1.9}, {4, 1.7}}};
  EXPECT_EQ(ChooseBatchCut(Uncut(4), {.whole = table.estimate()})->rows, 2);
  EXPECT_EQ(ChooseBatchCut(Uncut(4), {.whole = table.estimate(), .shares_memory = true})->rows, 1);
  EXPECT_EQ(ChooseBatchCut(Uncut(4), {.whole = faster.estimate(), .shares_memory = true})->rows, 4);
}

TEST(BatchCut, WithValuesInFartherTiersHasToGainMore) {
  Table whole{{{2, 3.0}, {4, 2.0}}};
  EXPECT_EQ(
      ChooseBatchCut(Uncut(4), {.whole = whole.estimate(), .quick = Promises({{1, -4}, {2, -3.5}, {4, -3.4}})})->rows,
      1);
  EXPECT_EQ(ChooseBatchCut(Uncut(4), {.whole = whole.estimate(), .quick = Promises({{1, -4}, {2, -3}, {4, -2}})})->rows,
            4);
  EXPECT_EQ(ChooseBatchCut(Uncut(4), {.whole = whole.estimate(), .quick = Promises({{1, 4}, {2, -2}})})->rows, 1)
      << "not if fewer rows need none";
}

}  // namespace
}  // namespace temper::batch_cut_test
