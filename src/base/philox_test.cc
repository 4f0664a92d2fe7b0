#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace temper::philox_test {
namespace {

TEST(Philox, MatchesTheVectorsOfItsAuthors) {
  // Random123 1.09, kat_vectors: philox4x32 10 rounds, counter 0, key 0.
  const auto zero = Philox({.seed = 0, .name_hash = 0, .step = 0}, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  // Counter and key all ones.
  const auto ones = Philox({.seed = 0, .name_hash = ~0ull, .step = ~0ull}, ~0ull);
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformsAreInRangeWithTheRightMean) {
  const RngKey key{.seed = 42, .name_hash = HashName("layers.0.dropout"), .step = 3};
  double sum = 0;
  constexpr int kN = 100000;
  for (int i = 0; i < kN; ++i) {
    const float u = UniformAt(key, i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
  }
  // Standard error of the mean is 1/sqrt(12 n); six of them.
  EXPECT_NEAR(sum / kN, 0.5, 6 / std::sqrt(12.0 * kN));
}

TEST(Philox, NormalsHaveUnitVariance) {
  const RngKey key{.seed = 7, .name_hash = HashName("w"), .step = 0};
  double sum = 0, sum_of_squares = 0;
  constexpr int kN = 100000;
  for (int i = 0; i < kN; ++i) {
    const double z = NormalAt(key, i);
    sum += z;
    sum_of_squares += z * z;
  }
  EXPECT_NEAR(sum / kN, 0.0, 6 / std::sqrt(1.0 * kN));
  EXPECT_NEAR(sum_of_squares / kN, 1.0, 6 * std::sqrt(2.0 / kN));
}

}  // namespace
}  // namespace temper::philox_test
