#include "train/best_evaluation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "format/json.h"

namespace temper::best_evaluation_test {
namespace {

TEST(BestEvaluation, CountsAsTransformersEarlyStoppingCallback) {
  const auto goldens = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/schedule/goldens.json");
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  const Json& runs = (*goldens)["early_stopping"];
  ASSERT_EQ(runs.size(), 6u);
  for (const Json& run : runs) {
    BestEvaluation best;
    std::vector<int64_t> counters;
    double lowest = run["losses"][0];
    for (const Json& loss : run["losses"]) {
      best.Take(loss, static_cast<int64_t>(counters.size()), run["threshold"]);
      counters.push_back(best.without_gain);
      lowest = std::min<double>(lowest, loss);
      EXPECT_EQ(best.value, lowest);
      EXPECT_EQ(run["losses"][static_cast<size_t>(best.step)], lowest);
    }
    EXPECT_EQ(counters, run["counters"].get<std::vector<int64_t>>()) << run["threshold"];
  }
}

// The same runs with each loss negated, and more is better.
TEST(BestEvaluation, CountsAlikeWhereMoreIsBetter) {
  const auto goldens = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/schedule/goldens.json");
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  for (const Json& run : (*goldens)["early_stopping"]) {
    BestEvaluation best{.by = {.name = "accuracy", .greater_is_better = true}};
    std::vector<int64_t> counters;
    for (const Json& loss : run["losses"]) {
      best.Take(-loss.get<double>(), static_cast<int64_t>(counters.size()), run["threshold"]);
      counters.push_back(best.without_gain);
    }
    EXPECT_EQ(counters, run["counters"].get<std::vector<int64_t>>()) << run["threshold"];
    EXPECT_EQ(-*best.value, run["losses"][static_cast<size_t>(best.step)].get<double>());
  }
}

}  // namespace
}  // namespace temper::best_evaluation_test
