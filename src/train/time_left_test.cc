#include "train/time_left.h"

#include <gtest/gtest.h>

namespace temper::time_left_test {
namespace {

TEST(TimeLeft, CountsStepsAndWhatIsKnownOfEvaluationsAndSaves) {
  TimeLeft left;
  left.Stepped(Seconds{2}, Seconds{0});
  EXPECT_DOUBLE_EQ(left.Of({.steps = 10, .evaluations = 3, .saves = 3}).v, 20) << "nothing is known of the others";
  left.Evaluated(Seconds{30});
  left.Evaluated(Seconds{50});
  EXPECT_DOUBLE_EQ(left.Of({.steps = 10, .evaluations = 3, .saves = 3}).v, 20 + 3 * 40);
  EXPECT_DOUBLE_EQ(left.Of({}).v, 0);
}

// It delays its call and the next update; without a step beside it, all of it counts.
TEST(TimeLeft, ASaveCountsAsLongAsTheRunWaitsForIt) {
  TimeLeft left;
  left.Stepped(Seconds{2}, Seconds{0});
  left.Saved(Seconds{1});
  left.Stepped(Seconds{5}, Seconds{3});
  EXPECT_DOUBLE_EQ(left.Of({.steps = 10, .saves = 3}).v, 10 * 2 + 3 * 4) << "the step itself took two seconds";
  left.SavedWhole(Seconds{9});
  EXPECT_DOUBLE_EQ(left.Of({.steps = 10, .saves = 3}).v, 10 * 2 + 2 * 4 + 9);
}

}  // namespace
}  // namespace temper::time_left_test
