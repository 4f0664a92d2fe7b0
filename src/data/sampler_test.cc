#include "data/sampler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "data/token_memory.h"

namespace temper::sampler_test {
namespace {

TokenStore RandomStore(uint32_t seed, int n, int max) {
  std::mt19937 random(seed);
  MemoryTokens made;
  for (int s = 0; s < n; ++s) {
    const std::vector<int32_t> tokens(1 + random() % static_cast<uint32_t>(max), s);
    made.Add(tokens, std::vector<uint8_t>(tokens.size(), 1));
  }
  return made.Store();
}

std::vector<int32_t> Ids(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The samples of a batch, row by row.
std::vector<std::vector<int32_t>> Contents(const Sampler& sampler, const Sampler::Batch& batch) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const auto row = sampler.packing().row(batch.first_row + r);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

TEST(Sampler, SeesEverySampleOncePerEpochAndCountsItsSteps) {
  const TokenStore store = RandomStore(1, 300, 20);
  for (const int64_t rows_per_step : {1, 7, 16, 1000}) {
    Sampler sampler(store, Ids(300), {.max_seq_len = 32}, 42);
    const auto steps = StepsOf(sampler.rows_of_epoch(), rows_per_step, 3);
    ASSERT_TRUE(steps.ok());
    int64_t done = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(300, 0);
      for (int64_t step = 0; step < steps->per_epoch; ++step, ++done) {
        const auto batch = sampler.NextBatch(rows_per_step);
        ASSERT_EQ(batch.epoch, epoch);
        ASSERT_GT(batch.rows, 0);
        ASSERT_LE(batch.rows, rows_per_step);
        for (const auto& row : Contents(sampler, batch)) {
          for (const int32_t id : row) ++seen[static_cast<size_t>(id)];
        }
      }
      ASSERT_EQ(seen, std::vector<int>(300, 1)) << "epoch " << epoch;
      EXPECT_DOUBLE_EQ(sampler.epochs_done(), static_cast<double>(epoch + 1));
    }
    EXPECT_EQ(done, steps->total);
  }
}

TEST(Sampler, ContinuesFromItsStateAsIfNeverStopped) {
  const TokenStore store = RandomStore(2, 100, 20);
  Sampler straight(store, Ids(100), {.max_seq_len = 32}, 7);
  for (int stop = 0; stop < 60; ++stop) {
    // As in a new process: a new sampler, with a seed that the state overrides.
    Sampler resumed(store, Ids(100), {.max_seq_len = 32}, 1234);
    ASSERT_TRUE(resumed.Restore(straight.state()).ok());
    Sampler twin(store, Ids(100), {.max_seq_len = 32}, 99);
    ASSERT_TRUE(twin.Restore(straight.state()).ok());
    for (int k = 0; k < 30; ++k) {
      const auto a = resumed.NextBatch(3), b = twin.NextBatch(3);
      ASSERT_EQ(Contents(resumed, a), Contents(twin, b));
    }
    Sampler next(store, Ids(100), {.max_seq_len = 32}, 5);
    ASSERT_TRUE(next.Restore(straight.state()).ok());
    const auto expected = straight.NextBatch(3);
    const auto got = next.NextBatch(3);
    ASSERT_EQ(Contents(straight, expected), Contents(next, got)) << "stopped before batch " << stop;
    ASSERT_EQ(straight.state(), next.state());
  }
  EXPECT_GT(straight.state().epoch, 0);
}

// The order of rows does not depend on the rows per step; only the ends of steps do.
TEST(Sampler, OrderWithinAnEpochIsIndependentOfTheBatchSize) {
  const TokenStore store = RandomStore(3, 200, 20);
  const auto order = [&](int64_t rows_per_step) {
    Sampler sampler(store, Ids(200), {.max_seq_len = 32}, 11);
    std::vector<std::vector<int32_t>> all;
    for (int64_t rows = 0; rows < 2 * sampler.rows_of_epoch();) {
      const auto batch = sampler.NextBatch(rows_per_step);
      for (auto& row : Contents(sampler, batch)) all.push_back(std::move(row));
      rows += batch.rows;
    }
    return all;
  };
  const auto one = order(1);
  EXPECT_EQ(order(4), one);
  EXPECT_EQ(order(13), one);
  EXPECT_EQ(order(10000), one);
}

// With parts of passes the rows of epochs differ, and steps are counted and continued all the same.
TEST(Sampler, CountsAndContinuesStepsWhereTheRowsOfEpochsDiffer) {
  const TokenStore store = RandomStore(8, 60, 30);
  const PackingOptions options{.max_seq_len = 32, .passes = {{0, 0.35}, {20, 1.6}}};
  constexpr int64_t kRows = 3;
  Sampler straight(store, Ids(60), options, 5);
  const int64_t rows_of_first = straight.rows_of_epoch();
  ASSERT_GT(rows_of_first, 10);
  std::set<int64_t> rows;
  std::vector<int64_t> steps_of(8, 0);
  for (;;) {
    Sampler resumed(store, Ids(60), options, 99);
    ASSERT_TRUE(resumed.Restore(straight.state()).ok());
    const auto batch = straight.NextBatch(kRows), again = resumed.NextBatch(kRows);
    ASSERT_EQ(Contents(straight, batch), Contents(resumed, again));
    ASSERT_EQ(straight.state(), resumed.state());
    if (batch.epoch == std::ssize(steps_of)) break;
    rows.insert(straight.rows_of_epoch());
    ++steps_of[static_cast<size_t>(batch.epoch)];
  }
  EXPECT_GT(rows.size(), 1u) << "the epochs of this test should differ";
  Packing packing(store, Ids(60), options);
  EXPECT_EQ(StepsOf(packing, 5, kRows, 8)->total, std::accumulate(steps_of.begin(), steps_of.end(), int64_t{0}));
  const StepsDone done = {4, {5, 0, 10}};  // with other rows per step
  EXPECT_EQ(StepsOf(packing, 5, kRows, 8, -1, done)->total,
            4 + std::accumulate(steps_of.begin() + 1, steps_of.end(), (rows_of_first - 10 + kRows - 1) / kRows));
  EXPECT_FALSE(StepsOf(packing, 5, kRows, 0.1, -1, done).ok());
  EXPECT_EQ(StepsOf(packing, 5, kRows, 8)->per_epoch, steps_of[0]);
  EXPECT_EQ(StepsOf(packing, 5, kRows, 1.5)->total, steps_of[0] + (steps_of[1] + 1) / 2);
  EXPECT_EQ(StepsOf(packing, 5, kRows, 8, 17)->total, 17);
  // No step more because 1.2 - 1 is 0.2 and a little.
  EXPECT_EQ(StepsOf(packing, 5, kRows, 1 + 1.0 / static_cast<double>(steps_of[1]))->total, steps_of[0] + 1);
  EXPECT_FALSE(StepsOf(packing, 5, kRows, 1e9).ok());
  EXPECT_FALSE(StepsOf(packing, 5, kRows, 0).ok());
}

// A run that goes on with other rows per step, at any place of any epoch.
TEST(Sampler, ABatchThatChangesGoesOnAtTheNextRow) {
  const TokenStore store = RandomStore(3, 100, 20);
  Sampler one(store, Ids(100), {.max_seq_len = 32}, 11);
  std::vector<std::vector<int32_t>> order;
  for (int64_t rows = 0; rows < 3 * one.rows_of_epoch(); ++rows) order.push_back(Contents(one, one.NextBatch(1))[0]);
  const int64_t all_steps = StepsOf(one.rows_of_epoch(), 4, 3)->total;
  for (int64_t first_steps = 0; first_steps <= all_steps; ++first_steps) {
    Sampler before(store, Ids(100), {.max_seq_len = 32}, 11);
    std::vector<std::vector<int32_t>> seen;
    const auto take = [&](Sampler& sampler, int64_t rows) {
      for (auto& row : Contents(sampler, sampler.NextBatch(rows))) seen.push_back(std::move(row));
    };
    for (int64_t i = 0; i < first_steps; ++i) take(before, 4);
    Sampler after(store, Ids(100), {.max_seq_len = 32}, 11);
    ASSERT_TRUE(after.Restore(before.state()).ok());
    const auto steps = StepsOf(after.rows_of_epoch(), 7, 3, -1, {first_steps, before.state()});
    ASSERT_TRUE(steps.ok()) << steps.status().message();
    for (int64_t i = first_steps; i < steps->total; ++i) take(after, 7);
    ASSERT_EQ(seen, order) << first_steps;
  }
}

TEST(Sampler, RefusesAStateOfOtherData) {
  const TokenStore store = RandomStore(4, 10, 20);
  Sampler sampler(store, Ids(10), {.max_seq_len = 20, .packing = false}, 1);
  EXPECT_TRUE(sampler.Restore({.seed = 1, .epoch = 3, .next_row = 10}).ok());
  EXPECT_EQ(sampler.NextBatch(2).epoch, 4);
  for (const SamplerState& bad : {SamplerState{1, 0, 11}, SamplerState{1, -1, 0}, SamplerState{1, 0, -1}}) {
    const Status status = sampler.Restore(bad);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("has changed"), std::string::npos);
  }
}

TEST(Sampler, StepsAreCountedAsTrainerDoes) {
  // Trainer: ceil(ceil(rows / rows per step) * epochs).
  EXPECT_EQ(StepsOf(10, 4, 1)->per_epoch, 3);
  EXPECT_EQ(StepsOf(10, 4, 3)->total, 9);
  EXPECT_EQ(StepsOf(8, 4, 3)->total, 6);
  EXPECT_EQ(StepsOf(10, 4, 0.5)->total, 2);
  EXPECT_EQ(StepsOf(10, 4, 3, 5)->total, 5);
  EXPECT_EQ(StepsOf(1, 1000, 1)->total, 1);
  EXPECT_FALSE(StepsOf(0, 4, 3).ok());
  EXPECT_FALSE(StepsOf(10, 0, 3).ok());
  EXPECT_FALSE(StepsOf(10, 4, 0).ok());
  EXPECT_FALSE(StepsOf(10, 4, std::numeric_limits<double>::quiet_NaN()).ok());
  EXPECT_FALSE(StepsOf(10, 4, 1e300).ok());
}

TEST(Sampler, AResumedRunEndsWhereItWouldHave) {
  for (const double epochs : {0.4, 1.0, 2.0, 2.5}) {
    for (const int64_t rows_per_step : {1, 3, 4, 10, 12}) {
      const auto whole = StepsOf(10, rows_per_step, epochs);
      StepsDone done;
      for (; done.steps <= whole->total; ++done.steps) {
        const auto resumed = StepsOf(10, rows_per_step, epochs, -1, done);
        ASSERT_TRUE(resumed.ok()) << resumed.status().message();
        EXPECT_EQ(resumed->total, whole->total) << epochs << " epochs, after " << done.steps;
        if (done.at.next_row == 10) done.at = {.epoch = done.at.epoch + 1};
        done.at.next_row = std::min<int64_t>(done.at.next_row + rows_per_step, 10);
      }
    }
  }
}

TEST(Sampler, ARunThatIsOverCannotEndEarlier) {
  EXPECT_EQ(StepsOf(10, 4, 1, 5, {5, {.epoch = 1, .next_row = 8}})->total, 5);
  EXPECT_FALSE(StepsOf(10, 4, 1, 4, {5, {.epoch = 1, .next_row = 8}}).ok());
  EXPECT_EQ(StepsOf(10, 4, 1, -1, {3, {.epoch = 0, .next_row = 10}})->total, 3);
  EXPECT_FALSE(StepsOf(10, 4, 1, -1, {4, {.epoch = 1, .next_row = 4}}).ok());
  EXPECT_FALSE(StepsOf(10, 4, 0.5, -1, {3, {.epoch = 0, .next_row = 10}}).ok());
}

}  // namespace
}  // namespace temper::sampler_test
