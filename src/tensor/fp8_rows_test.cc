#include <gtest/gtest.h>

#include <random>

#include "tensor/format_rule.h"
#include "tensor/quantise_for_test.h"

namespace temper::fp8_rows_test {
namespace {

// As "FP8 Formats for Deep Learning" (Micikevicius et al. 2022) has e4m3: a sign, 4 bits of exponent with a bias of 7,
// 3 of mantissa.
double Element(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits < 128 ? magnitude : -magnitude;
}

const FormatRule& Fp8() {
  return RuleOf(*ParseElementFormat("fp8"));
}

TEST(Fp8Rows, ANumberIsItsElementTimesTheScaleOfItsBlock) {
  std::vector<std::byte> elements;
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7F) != 0x7F) elements.push_back(static_cast<std::byte>(bits));
  }
  const int64_t columns = std::ssize(elements);
  for (const float scale : {1.0f, 0.000213f, 3e-40f, 1e37f}) {
    const std::vector<float> scales = {scale, scale / 3};
    std::vector<std::byte> row(static_cast<size_t>(Fp8().row_bytes(columns)));
    ASSERT_TRUE(Fp8().stored->write_row(elements, scales, 0, row.data()));
    std::vector<bf16> numbers(elements.size());
    Fp8().numbers(row.data(), columns, 0, columns, numbers.data());
    for (size_t i = 0; i < elements.size(); ++i) {
      const auto number = static_cast<float>(Element(static_cast<int>(elements[i])) * double{scales[i / 128]});
      EXPECT_EQ(numbers[i].bits, ToBF16(number).bits) << i << " " << scale;
    }
  }
}

TEST(Fp8Rows, WhatIsNoNumberIsFound) {
  std::vector<std::byte> elements(10), row(static_cast<size_t>(Fp8().row_bytes(10)));
  const auto written = [&](float scale) { return Fp8().stored->write_row(elements, {{scale}}, 0, row.data()); };
  EXPECT_TRUE(written(1));
  EXPECT_FALSE(written(std::nanf("")));
  EXPECT_FALSE(written(INFINITY));
  for (const int nan : {0x7F, 0xFF}) {
    elements[7] = static_cast<std::byte>(nan);
    EXPECT_FALSE(written(1)) << nan;
  }
}

// Whatever part of the columns a row is of, its numbers are those of the whole.
TEST(Fp8Rows, PartsHaveTheNumbersOfTheWhole) {
  constexpr int64_t kColumns = 300;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(engine) * std::ldexp(1.0f, static_cast<int>(i) / 128 * 7 - 14);
  const Fp8Stored stored = Fp8OfMatrix(x, 1, kColumns);
  const ElementFormat fp8 = FormatWith(Fp8());
  for (int64_t begin = 0; begin < kColumns; begin += 7) {
    for (const int64_t columns : {int64_t{1}, int64_t{127}, int64_t{130}, kColumns - begin}) {
      if (begin + columns > kColumns) continue;
      const auto row = Quantised(fp8, x, {1, kColumns}, {0, begin}, {1, columns});
      for (int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(begin + c);
        const float product =
            static_cast<float>(Element(static_cast<int>(stored.elements[at]))) * stored.scales[at / 128];
        ASSERT_EQ(fp8.Number(row.data(), columns, c).bits, ToBF16(product).bits) << begin << " + " << c;
      }
    }
  }
}

// Half of the last place of three bits, of numbers that are not among the smallest.
TEST(Fp8Rows, TheNearestElementIsOffByASixteenthAtMost) {
  for (float x = 0x1p-6f; x < 448; x *= 1.01f) {
    const double element = Element(static_cast<int>(Fp8Element(x)));
    EXPECT_LE(std::fabs(element - double{x}), double{x} / 16) << x;
  }
}

}  // namespace
}  // namespace temper::fp8_rows_test
