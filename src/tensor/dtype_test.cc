#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace temper::dtype_test {
namespace {

TEST(DType, BF16RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(ToBF16(1.0f).bits, 0x3F80);
  EXPECT_EQ(ToBF16(1.0f + 0x1.0p-8f).bits, 0x3F80);  // a tie goes to the even neighbour below
  EXPECT_EQ(ToBF16(1.0f + 0x1.8p-7f).bits, 0x3F82);  // a tie goes to the even neighbour above
  EXPECT_EQ(ToFloat(ToBF16(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DType, EveryF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 x{static_cast<uint16_t>(bits)};
    const float f = ToFloat(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToF16(f))));
    } else {
      EXPECT_EQ(ToF16(f).bits, bits) << f;
    }
  }
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(ToF16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(ToF16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(ToF16(0x1.0p-25f).bits, 0);              // half of the smallest subnormal: tie to even zero
  EXPECT_EQ(ToF16(0x1.8p-24f).bits, 2);              // tie to even
  EXPECT_EQ(ToF16(1.0f + 0x1.0p-11f).bits, 0x3C00);  // tie to even
}

}  // namespace
}  // namespace temper::dtype_test
