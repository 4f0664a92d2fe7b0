#include "train/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <vector>

namespace temper::loss_curve_test {
namespace {

using Points = std::vector<std::pair<int64_t, double>>;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(LossCurve, ALinearlyFallingLossIsADiagonal) {
  Points points;
  for (int i = 0; i <= 9; ++i) points.emplace_back(i, 9 - i);
  EXPECT_EQ(DrawLossCurve(points, {}, {.width = 21, .height = 10, .unicode = false}),
            "        9 |*\n"
            "          | *\n"
            "          |  *\n"
            "          |   *\n"
            "          |    *\n"
            "        4 |     *\n"
            "          |      *\n"
            "          |       *\n"
            "          |        *\n"
            "        0 |         *\n"
            "          +----------\n"
            "           0   step 9\n");
}

TEST(LossCurve, MarksEvaluationsAndHasALegend) {
  const Points training = {{1, 2.0}, {10, 1.0}};
  const Points evaluation = {{10, 3.0}};
  const std::vector<std::string> lines = Lines(DrawLossCurve(training, evaluation, {.width = 40, .unicode = false}));
  EXPECT_EQ(lines.front().back(), 'o') << "the highest value, at the last step";
  EXPECT_NE(lines.back().find("eval_loss"), std::string::npos);
}

TEST(LossCurve, BrailleDotsAreWhereTheValuesAre) {
  // 16 x 8 dots: two across for each one up, from the lower left corner to the upper right one.
  const std::string text = DrawLossCurve(Points{{0, 0.0}, {1, 1.0}}, {}, {.width = 0, .height = 2, .unicode = true});
  const std::vector<std::string> lines = Lines(text);
  EXPECT_EQ(lines[0], "        1 ┤    ⣀⠤⠒⠉");
  EXPECT_EQ(lines[1], "        0 ┤⣀⠤⠒⠉");
}

TEST(LossCurve, WithoutPointsItIsEmpty) {
  EXPECT_EQ(DrawLossCurve({}, {}), "");
  EXPECT_EQ(DrawLossCurve(Points{{1, NAN}, {2, INFINITY}}, {}), "");
  EXPECT_EQ(DrawLossCurve(Points{{5, 1.25}}, Points{{5, 1.5}}), "") << "one step does not make a curve";
}

TEST(LossCurve, DrawsUnusualInput) {
  EXPECT_FALSE(DrawLossCurve(Points{{1, 2.0}, {2, 2.0}}, {}).empty());
  EXPECT_FALSE(DrawLossCurve({}, Points{{1, 2.0}, {2, 1.0}}).empty());
  Points many;
  for (int i = 0; i < 100000; ++i) many.emplace_back(i, i % 1000 == 7 ? NAN : 1e300 * std::cos(i));
  for (int width = -5; width < 130; width += 5) {
    for (int height = -1; height < 30; height += 5) {
      for (const bool unicode : {false, true}) {
        const auto lines = Lines(DrawLossCurve(many, {}, {.width = width, .height = height, .unicode = unicode}));
        ASSERT_EQ(lines.size(), static_cast<size_t>(std::max(2, height)) + 2);
      }
    }
  }
}

}  // namespace
}  // namespace temper::loss_curve_test
