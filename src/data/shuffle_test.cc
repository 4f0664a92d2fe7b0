#include "data/shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <vector>

namespace temper::shuffle_test {
namespace {

std::vector<int32_t> Order(uint64_t seed, const char* name, int64_t epoch, int n) {
  std::vector<int32_t> items(static_cast<size_t>(n));
  std::iota(items.begin(), items.end(), 0);
  Shuffle(seed, name, epoch, items);
  return items;
}

TEST(Shuffle, PermutesAndDependsOnSeedNameAndEpoch) {
  const auto base = Order(1, "a", 0, 1000);
  EXPECT_EQ(Order(1, "a", 0, 1000), base);
  for (const auto& other : {Order(2, "a", 0, 1000), Order(1, "b", 0, 1000), Order(1, "a", 1, 1000)}) {
    EXPECT_NE(other, base);
    auto sorted = other;
    std::sort(sorted.begin(), sorted.end());
    for (int32_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<size_t>(i)], i);
  }
  EXPECT_EQ(Order(1, "a", 0, 0).size(), 0u);
  EXPECT_EQ(Order(1, "a", 0, 1), std::vector<int32_t>{0});
}

// Resuming a checkpoint depends on the order: it may not change between versions.
TEST(Shuffle, OrderIsTheSameOnEveryMachineAndVersion) {
  EXPECT_EQ(Order(42, "data.rows", 1, 8), (std::vector<int32_t>{6, 1, 2, 0, 7, 5, 4, 3}));
}

TEST(Shuffle, EveryOrderIsEquallyLikely) {
  // 24 orders of 4 items, 24,000 draws: chi-squared with 23 degrees of freedom is above 60 once in 30,000 times.
  std::map<std::vector<int32_t>, int> seen;
  for (int64_t epoch = 0; epoch < 24000; ++epoch) ++seen[Order(7, "x", epoch, 4)];
  double chi_squared = 0;
  for (const auto& [order, n] : seen) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_LT(chi_squared, 60);
}

}  // namespace
}  // namespace temper::shuffle_test
