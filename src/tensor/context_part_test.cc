#include "tensor/context_part.h"

#include <gtest/gtest.h>

#include <vector>

namespace temper::context_part_test {
namespace {

TEST(ContextPart, EveryTokenIsOnOneRankInTheOrderOfPlaces) {
  constexpr int64_t kRows = 3;
  for (const int64_t ranks : {1, 2, 3, 4}) {
    for (const int64_t row : {24, 48}) {
      ASSERT_TRUE(ContextPart::Divides(row, ranks));
      std::vector<int> holders(static_cast<size_t>(kRows * row), 0);
      for (int64_t index = 0; index < ranks; ++index) {
        const ContextPart part{row, ranks, index};
        int64_t before = -1;
        for (int64_t local = 0; local < kRows * part.local_row(); ++local) {
          const int64_t place = part.PlaceOf(local);
          EXPECT_GT(place, before);
          before = place;
          ++holders[static_cast<size_t>(place)];
          EXPECT_TRUE(part.Has(place));
          EXPECT_EQ(part.LocalFrom(place), local);
          EXPECT_EQ(part.LocalFrom(place + 1), local + 1);
        }
        int64_t own = 0;
        for (int64_t place = 0; place < kRows * row; ++place) {
          EXPECT_EQ(part.LocalFrom(place), own);
          own += part.Has(place);
        }
      }
      for (const int n : holders) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ContextPart, RanksHaveChunksFromBothEnds) {
  const ContextPart first{32, 2, 0}, second{32, 2, 1};
  EXPECT_EQ(first.chunk_begin(0), 0);
  EXPECT_EQ(first.chunk_begin(1), 24);
  EXPECT_EQ(second.chunk_begin(0), 8);
  EXPECT_EQ(second.chunk_begin(1), 16);
}

// Pairs of a query of one rank and a key of another that a causal mask keeps: as many, whichever two ranks these are.
TEST(ContextPart, AnyTwoRanksShareTheSameWork) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    const int64_t row = 2 * ranks * 5, chunk = 5;
    for (int64_t i = 0; i < ranks; ++i) {
      for (int64_t j = 0; j < ranks; ++j) {
        const ContextPart queries{row, ranks, i}, keys{row, ranks, j};
        int64_t pairs = 0;
        for (int64_t t = 0; t < queries.local_row(); ++t) pairs += keys.LocalFrom(queries.PlaceOf(t) + 1);
        EXPECT_EQ(pairs, 2 * chunk * chunk + (i == j ? chunk : 0)) << i << " to " << j << " of " << ranks;
      }
    }
  }
}

TEST(ContextPart, OnlyRowsThatMakeWholeChunksAreDealt) {
  EXPECT_TRUE(ContextPart::Divides(31, 1));
  EXPECT_FALSE(ContextPart::Divides(30, 2));
  EXPECT_FALSE(ContextPart::Divides(32, 3));
  EXPECT_FALSE(ContextPart::Divides(4, 4));
  EXPECT_FALSE(ContextPart::Divides(0, 2));
  EXPECT_FALSE(ContextPart::Divides(32, INT64_MAX));
}

}  // namespace
}  // namespace temper::context_part_test
