#include "checkpoint/mean_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace temper::mean_rows_test {
namespace {

constexpr int64_t kRows = 400, kColumns = 3;

// Rows with a mean of (1, -2, 3) and deviations of 1, 2 and 0.5.
Result<std::vector<float>> Made(int64_t rows, int64_t count) {
  const double mean[] = {1, -2, 3}, deviation[] = {1, 2, 0.5};
  const ReadTableRows read = [&](int64_t first, int64_t n, std::span<float> out) {
    for (int64_t i = 0; i < n * kColumns; ++i) {
      const auto at = static_cast<uint64_t>(first * kColumns + i);
      const auto normal = static_cast<double>(NormalAt({.seed = 1, .name_hash = 2}, at));
      out[static_cast<size_t>(i)] = static_cast<float>(mean[i % kColumns] + deviation[i % kColumns] * normal);
    }
    return OkStatus();
  };
  return MeanRows(read, rows, kColumns, count);
}

TEST(MeanRows, AreTheMeanWithABillionthOfTheCovariance) {
  constexpr int64_t kCount = 500;
  const auto made = Made(kRows, kCount);
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), static_cast<size_t>(kCount * kColumns));
  const double deviation[] = {1, 2, 0.5};
  double mean[kColumns] = {}, squares[kColumns] = {};
  for (size_t i = 0; i < made->size(); ++i) mean[i % kColumns] += static_cast<double>((*made)[i]) / kCount;
  for (size_t i = 0; i < made->size(); ++i) {
    squares[i % kColumns] += std::pow(static_cast<double>((*made)[i]) - mean[i % kColumns], 2) / kCount;
  }
  const double wanted[] = {1, -2, 3};
  for (int64_t c = 0; c < kColumns; ++c) {
    // Of 400 rows: four of their mean's deviations.
    EXPECT_NEAR(mean[c], wanted[c], 4 * deviation[c] / std::sqrt(kRows));
    EXPECT_NEAR(std::sqrt(squares[c]), deviation[c] * std::sqrt(1e-9), 0.2 * deviation[c] * std::sqrt(1e-9));
  }
  EXPECT_EQ(*Made(kRows, kCount), *made) << "equal calls give equal rows";
}

TEST(MeanRows, OfATableWithoutFullRankAreItsMean) {
  const auto made = Made(kColumns, 2);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(std::equal(made->begin(), made->begin() + kColumns, made->begin() + kColumns));
}

}  // namespace
}  // namespace temper::mean_rows_test
