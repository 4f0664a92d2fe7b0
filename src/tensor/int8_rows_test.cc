#include "tensor/int8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace temper::int8_rows_test {
namespace {

std::vector<float> Read(const std::vector<std::byte>& row, int64_t columns) {
  std::vector<float> x;
  const float scale = ReadScale(row.data() + Int8ScaleAt(columns));
  for (int64_t i = 0; i < columns; ++i) {
    x.push_back(ToFloat(FromInt8(static_cast<int8_t>(row[static_cast<size_t>(i)]), scale)));
  }
  return x;
}

// Half a step, a rounding of the division, and bf16's half place.
TEST(Int8Rows, AreOffByHalfAScaleAndBf16sRounding) {
  std::mt19937 engine(1);
  for (const int64_t columns : {1, 12, 13, 100, 1000}) {
    for (const float spread : {1e-30f, 0.02f, 1.0f, 1e30f}) {
      std::normal_distribution<float> normal(0, spread);
      std::vector<float> x(static_cast<size_t>(columns));
      for (float& v : x) v = normal(engine);
      const float scale = Int8Scale(x);
      std::vector<std::byte> row(static_cast<size_t>(Int8RowBytes(columns)));
      WriteInt8Row(x, scale, row.data());
      const std::vector<float> got = Read(row, columns);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - x[i]), 0.5001 * scale + 0x1p-8 * std::fabs(got[i])) << columns << ": " << x[i];
      }
    }
  }
}

TEST(Int8Rows, TiesGoToTheEvenInteger) {
  std::vector<std::byte> row(static_cast<size_t>(Int8RowBytes(6)));
  WriteInt8Row(std::vector<float>{0.5f, 1.5f, -0.5f, -2.5f, 127, -127}, 1, row.data());
  EXPECT_EQ(Read(row, 6), (std::vector<float>{0, 2, 0, -2, 127, -127}));
}

TEST(Int8Rows, ARowOfZerosIsZero) {
  const std::vector<float> zeros(5);
  std::vector<std::byte> row(static_cast<size_t>(Int8RowBytes(5)), std::byte{1});
  WriteInt8Row(zeros, Int8Scale(zeros), row.data());
  EXPECT_EQ(Read(row, 5), zeros);
}

TEST(Int8Rows, TheScaleOfARowThatIsNotFiniteIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : {infinity, -infinity, nan}) {
    EXPECT_FALSE(std::isfinite(Int8Scale(std::vector<float>{1, x, 2})));
    EXPECT_FALSE(std::isfinite(Int8Scale(std::vector<float>{x})));
  }
  EXPECT_EQ(Int8Scale(std::vector<float>{-254, 1}), 2);
}

}  // namespace
}  // namespace temper::int8_rows_test
