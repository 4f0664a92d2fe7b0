#include "data/padded_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "data/token_memory.h"

namespace temper::padded_rows_test {
namespace {

TokenStore StoreOf(const std::vector<int64_t>& lengths) {
  MemoryTokens made;
  for (const int64_t n : lengths) {
    const std::vector<int32_t> tokens(static_cast<size_t>(n), 1);
    const std::vector<uint8_t> flags(tokens.size(), 1);
    made.Add(tokens, flags, std::vector<TokenWeight>(tokens.size(), kUnitWeight));
  }
  return made.Store();
}

TEST(PaddedRows, AMicroBatchHasTheShortestLengthThatHoldsItsRows) {
  constexpr std::array<int64_t, 3> kLengths = {64, 32, 16};
  EXPECT_EQ(ShortestThatHolds(kLengths, 0), 2u);
  EXPECT_EQ(ShortestThatHolds(kLengths, 16), 2u);
  EXPECT_EQ(ShortestThatHolds(kLengths, 17), 1u);
  EXPECT_EQ(ShortestThatHolds(kLengths, 33), 0u);
  EXPECT_EQ(ShortestThatHolds(kLengths, 64), 0u);

  const TokenStore store = StoreOf({10, 20, 16, 8, 60});
  std::vector<int32_t> all(5);
  std::iota(all.begin(), all.end(), 0);
  Packing packing(store, all, {.max_seq_len = 64, .packing = false, .shuffle = false});
  packing.Pack(0, 0);
  ASSERT_EQ(packing.rows(), 5);
  EXPECT_EQ(LongestRow(store, packing, 0, 2), 20);
  EXPECT_EQ(LongestRow(store, packing, 2, 0), 0);
  EXPECT_EQ(LongestRow(store, packing, 2, 3), 60);
  // 32, 16 and 64 tokens for two rows each; the last micro-batch has one.
  EXPECT_DOUBLE_EQ(FilledPart(store, packing, 2, kLengths), 114.0 / (2 * (32 + 16 + 64)));
  EXPECT_DOUBLE_EQ(FilledPart(store, packing, 1, kLengths), 114.0 / (16 + 32 + 16 + 16 + 64));
  EXPECT_DOUBLE_EQ(FilledPart(store, packing, 1, std::array<int64_t, 1>{64}), packing.efficiency());
}

}  // namespace
}  // namespace temper::padded_rows_test
