#include "tensor/nf4_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor/quantise_for_test.h"

namespace temper::nf4_rows_test {
namespace {

float Number(const std::vector<std::byte>& row, int64_t columns, int64_t column) {
  return ToFloat(Nf4Row(row.data(), columns).Number(column));
}

// An index is off by half the widest gap between two numbers, of its block's absmax. That is off by half a gap of its
// own numbers, of its group's scale (and by half of the 65,535 steps that it is rounded to first), with three
// roundings. The result is rounded to bf16.
TEST(Nf4Rows, AreOffByHalfAGapOfEachNumber) {
  float widest = 0, absmax_gap = 0;
  for (int i = 0; i < 15; ++i) widest = std::max(widest, kNf4Numbers[i + 1] - kNf4Numbers[i]);
  const auto& numbers = kNf4AbsmaxNumbers;
  for (size_t i = 0; i < 255; ++i) {
    ASSERT_LT(numbers[i], numbers[i + 1]);
    absmax_gap = std::max(absmax_gap, numbers[i + 1] - numbers[i]);
  }
  // The lowest number is not -1, which is where an absmax may lie.
  const float absmax_error = std::max(absmax_gap / 2, numbers[0] + 1) + 1 / 65535.0f;
  std::mt19937 engine(1);
  for (const int64_t columns : {1, 13, 64, 100, 1000}) {
    for (const float spread : {1e-30f, 0.02f, 1.0f, 1e30f}) {
      std::normal_distribution<float> normal(0, spread);
      const Shape shape = {40, columns};
      std::vector<float> x(static_cast<size_t>(shape.elements())), absmax(x.size() / 64 + 1);
      for (float& v : x) v = normal(engine);
      for (size_t i = 0; i < x.size(); ++i) absmax[i / 64] = std::max(absmax[i / 64], std::fabs(x[i]));
      absmax.resize((x.size() + 63) / 64);
      const Nf4Absmaxes q = QuantiseAbsmaxes(absmax);
      const std::vector<std::byte> rows = Quantised(ElementFormat::Nf4(), x, shape, {0, 0}, shape);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / columns;
        const float got = ToFloat(ElementFormat::Nf4().Number(rows.data() + row * Nf4RowBytes(columns), columns,
                                                              static_cast<int64_t>(i) % columns));
        const float of_absmax = absmax_error * q.scales[i / 64 / 256] + 3e-7f * absmax[i / 64];
        ASSERT_LE(std::fabs(got - x[i]), 0.5001f * widest * absmax[i / 64] + of_absmax + 0x1p-8f * std::fabs(got))
            << columns << ": " << x[i];
      }
    }
  }
}

// Whatever part of the rows and columns a row is of, its numbers are those of the whole.
TEST(Nf4Rows, PartsHaveTheNumbersOfTheWhole) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (const Shape& whole : {Shape{300, 61}, Shape{5, 16500}, Shape{20, 128}}) {
    std::vector<float> x(static_cast<size_t>(whole.elements()));
    for (float& v : x) v = normal(engine);
    const ElementFormat nf4 = ElementFormat::Nf4();
    const std::vector<std::byte> all = Quantised(nf4, x, whole, {0, 0}, whole);
    for (const int64_t column : {0, 1, 7, 60}) {
      const Shape part = {whole[0] - 3, whole[1] - column};
      const std::vector<std::byte> rows = Quantised(nf4, x, whole, {3, column}, part);
      for (int64_t r = 0; r < part[0]; ++r) {
        for (int64_t c = 0; c < part[1]; ++c) {
          if (nf4.Number(rows.data() + r * nf4.RowBytes(part[1]), part[1], c).bits !=
              nf4.Number(all.data() + (3 + r) * nf4.RowBytes(whole[1]), whole[1], column + c).bits)
            FAIL() << whole.ToString() << " row " << 3 + r << " column " << column + c;
        }
      }
    }
  }
}

TEST(Nf4Rows, ZerosAndTheLargestOfABlockAreExact) {
  std::vector<float> x(64);
  const auto number = [&](int64_t i) {
    return Number(Quantised(ElementFormat::Nf4(), x, {1, 64}, {0, 0}, {1, 64}), 64, i);
  };
  EXPECT_EQ(number(5), 0) << "all are";
  x = {0.5f, -0.75f, 0.1f};
  x.resize(64);
  EXPECT_EQ(number(1), -0.75f);
  EXPECT_EQ(number(9), 0);
}

}  // namespace
}  // namespace temper::nf4_rows_test
