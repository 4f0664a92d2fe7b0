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
      EXPECT_EQ(best.loss, lowest);
      EXPECT_EQ(run["losses"][static_cast<size_t>(best.step)], lowest);
    }
    EXPECT_EQ(counters, run["counters"].get<std::vector<int64_t>>()) << run["threshold"];
  }
}

}  // namespace
}  // namespace temper::best_evaluation_test
