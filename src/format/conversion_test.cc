#include "format/conversion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace temper::conversion_test {
namespace {

template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> Converted(DType from, const std::vector<std::byte>& in, DType to, bool reference) {
  const int64_t n = static_cast<int64_t>(in.size()) / SizeOf(from);
  std::vector<std::byte> out(static_cast<size_t>(n * SizeOf(to)));
  (reference ? ConvertReference : Convert)(from, in.data(), to, out.data(), n);
  return out;
}

// The hardware makes a signalling F16 NaN quiet and the scalar twin does not: any NaN equals any other.
void ExpectSame(DType t, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a == b) return;
  std::vector<std::byte> fa = Converted(t, a, DType::kF64, true), fb = Converted(t, b, DType::kF64, true);
  for (size_t i = 0; i < fa.size(); i += 8) {
    double x, y;
    std::memcpy(&x, &fa[i], 8);
    std::memcpy(&y, &fb[i], 8);
    if (std::isnan(x) && std::isnan(y)) continue;
    ASSERT_EQ(std::memcmp(&x, &y, 8), 0) << x << " vs " << y << " at " << i / 8;
  }
}

TEST(Conversion, VectorKernelsAgreeWithTheirScalarTwinOnEvery16BitPattern) {
  std::vector<uint16_t> all(0x10000 + 5);  // and a remainder
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (DType from : {DType::kBF16, DType::kF16}) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const auto in = BytesOf(all);
      ExpectSame(to, Converted(from, in, to, false), Converted(from, in, to, true));
    }
  }
}

TEST(Conversion, VectorKernelsAgreeWithTheirScalarTwinOnF32) {
  std::mt19937 random(1);
  std::vector<uint32_t> bits;
  for (int i = 0; i < 100'003; ++i) bits.push_back(static_cast<uint32_t>(random()));
  // Every bf16 boundary: the upper half with a lower half just below, at and above the tie.
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0x0000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) bits.push_back(upper << 16 | lower);
  }
  const auto in = BytesOf(bits);
  for (DType to : {DType::kBF16, DType::kF16, DType::kF64}) {
    ExpectSame(to, Converted(DType::kF32, in, to, false), Converted(DType::kF32, in, to, true));
  }
}

TEST(Conversion, EveryLengthIsConvertedToItsEndAndNoFurther) {
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<bf16> in(static_cast<size_t>(n), ToBF16(3.0f));
    std::vector<float> out(static_cast<size_t>(n) + 1, -1.0f);
    Convert(DType::kBF16, reinterpret_cast<std::byte*>(in.data()), DType::kF32,
            reinterpret_cast<std::byte*>(out.data()), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[i], 3.0f);
    EXPECT_EQ(out[n], -1.0f);
  }
}

// Large results go past the caches where they are aligned for it.
TEST(Conversion, LargeResultsAreTheSameWhereverTheyLie) {
  constexpr size_t kElements = 300'007;
  std::vector<uint16_t> in(kElements);
  for (size_t i = 0; i < kElements; ++i) in[i] = static_cast<uint16_t>(i * 40503);
  for (const DType from : {DType::kBF16, DType::kF16}) {
    const std::vector<std::byte> expected = Converted(from, BytesOf(in), DType::kF32, true);
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{8}, size_t{15}}) {
      std::vector<float> memory(kElements + 32, -1.0f);
      const size_t to_line = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
      float* const out = memory.data() + to_line + offset;
      Convert(from, reinterpret_cast<const std::byte*>(in.data()), DType::kF32, reinterpret_cast<std::byte*>(out),
              kElements);
      std::vector<std::byte> bytes(kElements * sizeof(float));
      std::memcpy(bytes.data(), out, bytes.size());
      ExpectSame(DType::kF32, bytes, expected);
      EXPECT_EQ(out[kElements], -1.0f);
    }
  }
}

TEST(Conversion, F64IsRoundedOnceNotTwice) {
  // Just above the tie between bf16 1 and 1 + 2^-7: rounding to f32 first would land on the tie and then go down.
  const double above = 1.0 + 0x1.0p-8 + 0x1.0p-40;
  const std::vector<double> in = {above, -above, 1.0 + 0x1.0p-8, 1e300, 0x1.0p-200, 0.0, -0.0, 1.5};
  const auto out = Converted(DType::kF64, BytesOf(in), DType::kBF16, false);
  std::vector<bf16> got(in.size());
  std::memcpy(got.data(), out.data(), out.size());
  EXPECT_EQ(ToFloat(got[0]), 1.0f + 0x1.0p-7f);
  EXPECT_EQ(ToFloat(got[1]), -1.0f - 0x1.0p-7f);
  EXPECT_EQ(ToFloat(got[2]), 1.0f);  // a true tie goes to even
  EXPECT_EQ(ToFloat(got[3]), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToFloat(got[4]), 0.0f);
  EXPECT_EQ(got[5].bits, 0x0000);
  EXPECT_EQ(got[6].bits, 0x8000);
  EXPECT_EQ(ToFloat(got[7]), 1.5f);

  const double f16_above = 1.0 + 0x1.0p-11 + 0x1.0p-40;
  const auto half = Converted(DType::kF64, BytesOf(std::vector<double>{f16_above, 65519.99999999}), DType::kF16, false);
  std::vector<f16> halves(2);
  std::memcpy(halves.data(), half.data(), 4);
  EXPECT_EQ(ToFloat(halves[0]), 1.0f + 0x1.0p-10f);
  EXPECT_EQ(ToFloat(halves[1]), 65504.0f);
}

TEST(Conversion, F64ToBF16IsTheNearestOfAllBF16) {
  std::mt19937_64 random(2);
  std::vector<double> in;
  for (int i = 0; i < 100'000; ++i) {
    // Near a tie: a bf16, half a step, and a nudge far below f32's precision.
    const float base = ToFloat(bf16{static_cast<uint16_t>(0x0100 + random() % 0x7E00)});
    const float next = std::bit_cast<float>(std::bit_cast<uint32_t>(base) + 0x10000);
    const double middle = (static_cast<double>(base) + next) / 2;
    in.push_back(middle * (1 + (static_cast<int>(random() % 3) - 1) * 0x1.0p-45));
  }
  const auto out = Converted(DType::kF64, BytesOf(in), DType::kBF16, false);
  for (size_t i = 0; i < in.size(); ++i) {
    bf16 got;
    std::memcpy(&got, &out[2 * i], 2);
    const double error = std::fabs(ToFloat(got) - in[i]);
    for (int step : {-1, 1}) {
      const double other = ToFloat(bf16{static_cast<uint16_t>(got.bits + step)});
      const double other_error = std::fabs(other - in[i]);
      ASSERT_LE(error, other_error) << in[i];
      if (error == other_error) {
        ASSERT_EQ(got.bits & 1, 0) << in[i];
      }
    }
  }
}

}  // namespace
}  // namespace temper::conversion_test
