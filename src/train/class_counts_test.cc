#include "train/class_counts.h"

#include <gtest/gtest.h>

#include <vector>

namespace temper::class_counts_test {
namespace {

// By hand: class 0: 2 right, 3 predicted, 2 both: 4/5. Class 1: 2 right, 1 predicted, 1 both: 2/3. Class 2: 1, 1, 0: 0.
TEST(ClassCounts, F1IsThatOfScikitLearn) {
  ClassCounts counts(4);
  counts.Add(std::vector<int32_t>{0, -1, 1, 2, 0, 1}, std::vector<float>{0, -1, 1, 0, 0, 2});
  EXPECT_DOUBLE_EQ(counts.F1(0), 0.8);
  EXPECT_DOUBLE_EQ(counts.F1(1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(counts.F1(2), 0);
  EXPECT_DOUBLE_EQ(counts.F1(3), 0);
  EXPECT_DOUBLE_EQ(counts.MacroF1(), (0.8 + 2.0 / 3) / 3) << "class 3 is nowhere";
  EXPECT_DOUBLE_EQ(ClassCounts(2).MacroF1(), 0);
}

}  // namespace
}  // namespace temper::class_counts_test
