#include "run/other_load.h"

#include <gtest/gtest.h>

namespace temper::other_load_test {
namespace {

constexpr char kStat[] =
    "cpu  300 0 60 900 40 0 20 10 0 0\n"
    "cpu0 100 0 20 400 20 0 10 6 0 0\n"
    "cpu1 200 50 40 500 20 5 10 4 0 0\n"
    "cpu10 7 0 0 0 0 0 0 0 0 0\n"
    "intr 12345\n";

TEST(OtherLoad, CountsTheProcessorsThatTheProcessMayUse) {
  const auto one = ParseProcessorTimes(kStat, {1}, 100);
  ASSERT_TRUE(one);
  EXPECT_DOUBLE_EQ(one->busy.v, 3.05);  // user, nice, system and interrupts, neither idle nor waiting
  EXPECT_DOUBLE_EQ(one->stolen.v, 0.04);
  const auto two = ParseProcessorTimes(kStat, {0, 1}, 100);
  ASSERT_TRUE(two);
  EXPECT_DOUBLE_EQ(two->busy.v, 4.35);
  EXPECT_FALSE(ParseProcessorTimes(kStat, {2}, 100));
  EXPECT_FALSE(ParseProcessorTimes("", {0}, 100));
}

TEST(OtherLoad, LeavesOutWhatTheProcessDidItself) {
  const OtherLoad::Moment begin = {{{100}, {3}}, {40}, {1000}};
  const OtherLoad::Taken taken = OtherLoad::Between(begin, {{{118}, {4}}, {55}, {1010}});
  EXPECT_DOUBLE_EQ(taken.others, 0.3);
  EXPECT_DOUBLE_EQ(taken.stolen, 0.1);
  EXPECT_EQ(OtherLoad::Between(begin, {{{100}, {3}}, {40.01}, {1010}}).others, 0) << "counted in ticks";
}

TEST(OtherLoad, IsSaidOfACalibrationWhereItMatters) {
  EXPECT_EQ(DescribeOtherLoad(OtherLoad::Taken{0.1, 0.1}, 2, {1e12, 0.9e12}), "");
  EXPECT_EQ(DescribeOtherLoad(OtherLoad::Taken{0.84, 0}, 2, {1e12}), "other programs took 0.8 of 2 processors");
  EXPECT_EQ(DescribeOtherLoad(OtherLoad::Taken{0, 0.2}, 2, {1e12}), "the host took 0.2 of 2 processors");
  EXPECT_EQ(DescribeOtherLoad(OtherLoad::Taken{0.84, 0}, 2, {0.5e12, 1e12, 0.7e12}),
            "other programs took 0.8 of 2 processors and the multipliers reached 500 to 1000 GFLOP/s");
  EXPECT_EQ(DescribeOtherLoad(std::nullopt, 2, {}), "");
}

TEST(OtherLoad, IsKnownOnThisMachine) {
  const OtherLoad load(PosixEnv());
  EXPECT_TRUE(load.SinceStart());
}

}  // namespace
}  // namespace temper::other_load_test
