#include "tensor/tiling.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace temper::tiling_test {
namespace {

std::string Fault(const Shape& whole, const std::vector<Box>& boxes) {
  return FaultOfTiling(whole, boxes, [](size_t i) { return fmt::format("slice {}", i); });
}

TEST(Tiling, RowsThatFollowEachOtherAreOneBox) {
  using Groups = std::vector<std::vector<size_t>>;
  const std::vector<Box> of_rows = {{{6, 0}, {2, 5}}, {{0, 0}, {2, 5}}, {{2, 0}, {3, 5}}};
  EXPECT_EQ(JoinRows(of_rows), (Groups{{1, 2}, {0}}));
  const std::vector<Box> of_columns = {{{0, 0}, {2, 3}}, {{2, 3}, {2, 2}}, {{2, 0}, {2, 3}}};
  EXPECT_EQ(JoinRows(of_columns), (Groups{{0}, {1}, {2}})) << "only the last that it could follow is asked";
  const std::vector<Box> scalar = {{{}, {}}};
  EXPECT_EQ(JoinRows(scalar), (Groups{{0}}));
  EXPECT_EQ(JoinRows({}), Groups());
}

TEST(Tiling, BoxesThatDoNotMakeUpTheWholeAreNamed) {
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {4, 6}}}), "");
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {2, 6}}, {{2, 0}, {2, 3}}, {{2, 3}, {2, 3}}}), "");
  EXPECT_EQ(Fault({}, {{{}, {}}}), "");
  EXPECT_EQ(Fault({4, 6}, {}), "it has no slices");
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {2, 6}}}), "its 1 slices have 12 elements of 24");
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {2, 6}}, {{1, 0}, {2, 6}}}), "slice 0 overlaps slice 1");
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {4, 3}}, {{0, 4}, {4, 3}}}), "slice 1 is not a part of it");
  EXPECT_EQ(Fault({4, 6}, {{{0, 0}, {4, 6}}, {{4, 0}, {0, 6}}}), "slice 1 is empty");
  std::vector<Box> many;
  for (int64_t i = 0; i < 20000; ++i) many.push_back({{i}, {1}});
  EXPECT_EQ(Fault({20000}, many), "it has 20000 slices, 16384 at most");
}

}  // namespace
}  // namespace temper::tiling_test
