#include "plan/candidate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace temper::candidate_test {
namespace {

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
