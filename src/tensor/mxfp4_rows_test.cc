#include "tensor/mxfp4_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor/quantise_for_test.h"

namespace temper::mxfp4_rows_test {
namespace {

// As the specification has them: sign, two bits of exponent with a bias of 1, one of mantissa; no infinity, no NaN.
double Element(int index) {
  const int exponent = index >> 1 & 3;
  const double magnitude = exponent == 0 ? 0.5 * (index & 1) : std::ldexp(1 + 0.5 * (index & 1), exponent - 1);
  return index < 8 ? magnitude : -magnitude;
}

TEST(Mxfp4Rows, ANumberIsItsElementTimesAPowerOfTwo) {
  for (int scale = 0; scale < 255; ++scale) {
    for (int index = 0; index < 16; ++index) {
      const double number = std::ldexp(Element(index), scale - 127);
      const float got = ToFloat(Mxfp4NumbersOfScales()[static_cast<size_t>(scale)][static_cast<size_t>(index)]);
      if (std::fabs(number) < 0x1p128) {
        ASSERT_EQ(got, static_cast<float>(number)) << scale << " " << index;
      } else {
        ASSERT_TRUE(std::isinf(got)) << scale << " " << index;
      }
    }
  }
}

// Whatever part of the columns a row is of, its numbers are those of the whole, which are those of the file.
TEST(Mxfp4Rows, PartsHaveTheNumbersOfTheWhole) {
  constexpr int64_t kColumns = 160;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(engine) * std::ldexp(1.0f, static_cast<int>(i) / 32 * 7 - 14);
  const Mxfp4Stored stored = Mxfp4OfRow(x);
  const ElementFormat mxfp4 = ElementFormat::Mxfp4();
  for (int64_t begin = 0; begin < kColumns; ++begin) {
    for (const int64_t columns : {int64_t{1}, int64_t{31}, int64_t{48}, int64_t{65}, kColumns - begin}) {
      if (begin + columns > kColumns) continue;
      std::vector<std::byte> row(static_cast<size_t>(Mxfp4RowBytes(columns)), std::byte{0xFF});
      WriteMxfp4Row(stored.pairs, stored.scales, begin, columns, row.data());
      for (int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(begin + c);
        const int index = static_cast<int>(stored.pairs[at / 2]) >> (at % 2 == 0 ? 0 : 4) & 15;
        const double number = std::ldexp(Element(index), static_cast<int>(stored.scales[at / 32]) - 127);
        ASSERT_EQ(ToFloat(mxfp4.Number(row.data(), columns, c)), number) << begin << " + " << c << " of " << columns;
      }
    }
  }
}

// A gpt-oss has rows of 2,880.
TEST(Mxfp4Rows, AWholeRowHasTheBytesOfTheFile) {
  std::vector<float> x(2880);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
  const Mxfp4Stored stored = Mxfp4OfRow(x);
  std::vector<std::byte> row(static_cast<size_t>(Mxfp4RowBytes(2880)));
  EXPECT_EQ(row.size(), 1536u);
  WriteMxfp4Row(stored.pairs, stored.scales, 0, 2880, row.data());
  EXPECT_TRUE(std::equal(stored.pairs.begin(), stored.pairs.end(), row.begin()));
  EXPECT_TRUE(std::equal(stored.scales.begin(), stored.scales.end(), row.begin() + 1440));
}

}  // namespace
}  // namespace temper::mxfp4_rows_test
