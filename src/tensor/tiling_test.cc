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
  const auto groups = [](const std::vector<Box>& boxes) {
    Groups numbers;
    for (const JoinedBoxes& joined : JoinBoxes(boxes)) {
      EXPECT_FALSE(joined.alternate);
      numbers.push_back(joined.boxes);
    }
    return numbers;
  };
  EXPECT_EQ(groups(of_rows), (Groups{{1, 2}, {0}}));
  EXPECT_EQ(JoinBoxes(of_rows)[0].whole.shape, (Shape{5, 5}));
  const std::vector<Box> of_columns = {{{0, 0}, {2, 3}}, {{2, 3}, {2, 2}}, {{2, 0}, {2, 3}}};
  EXPECT_EQ(groups(of_columns), (Groups{{0}, {1}, {2}})) << "only the last that it could follow is asked";
  const std::vector<Box> scalar = {{{}, {}}};
  EXPECT_EQ(groups(scalar), (Groups{{0}}));
  EXPECT_EQ(groups({}), Groups());
}

TEST(Tiling, SegmentsOfEachMatrixOfAStackJoin) {
  const std::vector<Box> gate_up = {{{2, 3, 0}, {2, 1, 5}}, {{2, 0, 0}, {2, 3, 5}}};
  const auto none = JoinBoxes(gate_up);
  EXPECT_EQ(none.size(), 2u) << "in the order in which they lie";
  const std::vector<Box> in_order = {gate_up[1], gate_up[0]};
  const auto joined = JoinBoxes(in_order);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_TRUE(joined[0].alternate);
  EXPECT_EQ(joined[0].whole.begin, (Shape{2, 0, 0}));
  EXPECT_EQ(joined[0].whole.shape, (Shape{2, 4, 5}));
  EXPECT_EQ(JoinBoxes(std::vector<Box>{{{0, 0, 0}, {2, 2, 5}}, {{0, 3, 0}, {2, 2, 5}}}).size(), 2u) << "a gap";
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
