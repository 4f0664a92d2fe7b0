#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "data/token_memory.h"

namespace temper::packing_test {
namespace {

TokenStore StoreOf(const std::vector<int64_t>& lengths) {
  MemoryTokens store;
  int32_t token = 0;
  for (const int64_t n : lengths) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens) t = token++;
    store.Add(tokens, std::vector<uint8_t>(tokens.size(), 1));
  }
  return store.Store();
}

std::vector<int32_t> Ids(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<std::vector<int32_t>> RowsOf(const Packing& packing) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t r = 0; r < packing.rows(); ++r) rows.emplace_back(packing.row(r).begin(), packing.row(r).end());
  return rows;
}

std::vector<int64_t> RandomLengths(uint32_t seed, int64_t n, int64_t max) {
  std::mt19937 random(seed);
  std::vector<int64_t> lengths;
  // Mostly short, some of the full length, like instruction data.
  for (int64_t i = 0; i < n; ++i) {
    const int64_t short_one = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(max / 8, 1)));
    lengths.push_back(random() % 10 == 0 ? 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(max)) : short_one);
  }
  return lengths;
}

TEST(Packing, EverySampleIsInExactlyOneRowThatHoldsIt) {
  for (uint32_t trial = 0; trial < 60; ++trial) {
    const int64_t max = trial % 3 == 0 ? 7 : trial % 3 == 1 ? 64 : 333;
    const int64_t n = 1 + trial * 17;
    const TokenStore store = StoreOf(RandomLengths(trial, n, max));
    const bool packed = trial % 5 != 4;
    Packing packing(store, Ids(n), {.max_seq_len = max, .packing = packed});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const int64_t rows_before = packing.rows();
      packing.Pack(trial, epoch);
      ASSERT_EQ(packing.rows(), rows_before) << "steps could not be counted beforehand";
      std::vector<int> seen(static_cast<size_t>(n), 0);
      for (int64_t r = 0; r < packing.rows(); ++r) {
        int64_t used = 0;
        ASSERT_FALSE(packing.row(r).empty());
        for (const int32_t id : packing.row(r)) {
          ++seen[static_cast<size_t>(id)];
          used += store.length(id);
        }
        ASSERT_LE(used, max);
        if (!packed) {
          ASSERT_EQ(packing.row(r).size(), 1u);
        }
      }
      ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](int k) { return k == 1; }));
    }
  }
}

TEST(Packing, DependsOnLengthsSeedAndEpochOnly) {
  const auto lengths = RandomLengths(3, 500, 100);
  const TokenStore store = StoreOf(lengths);
  Packing a(store, Ids(500), {.max_seq_len = 100}), b(store, Ids(500), {.max_seq_len = 100});
  a.Pack(5, 2);
  const auto rows = RowsOf(a);
  for (int64_t epoch : {0, 1, 7}) b.Pack(9, epoch);  // earlier epochs leave no trace
  b.Pack(5, 2);
  EXPECT_EQ(RowsOf(b), rows);
  b.Pack(5, 3);
  EXPECT_NE(RowsOf(b), rows);
  b.Pack(6, 2);
  EXPECT_NE(RowsOf(b), rows);
}

TEST(Packing, IsCloseToTheFewestRowsPossible) {
  // Best fit decreasing needs at most 11/9 of the optimum + 1; on such lengths it is within 1 %.
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const TokenStore store = StoreOf(RandomLengths(seed, 3000, 512));
    const Packing packing(store, Ids(3000), {.max_seq_len = 512});
    const int64_t fewest = (store.total_tokens() + 511) / 512;
    EXPECT_LE(packing.rows(), fewest + fewest / 100 + 1);
    EXPECT_NEAR(packing.efficiency(),
                static_cast<double>(store.total_tokens()) / static_cast<double>(packing.rows() * 512), 1e-12);
  }
}

TEST(Packing, MatchesBestFitDecreasingByHand) {
  const TokenStore store = StoreOf({6, 5, 4, 3, 2});
  const Packing packing(store, Ids(5), {.max_seq_len = 10, .shuffle = false});
  // 6 opens a row, 5 another; 4 fits exactly after 6; 3 goes after 5, and 2 after that.
  EXPECT_EQ(RowsOf(packing), (std::vector<std::vector<int32_t>>{{0, 2}, {1, 3, 4}}));
  EXPECT_DOUBLE_EQ(packing.efficiency(), 1.0);
  EXPECT_DOUBLE_EQ(packing.attended_pairs(), 21 + 15 + 10 + 6 + 3);
}

TEST(Packing, WithoutShuffleTheOrderIsThatOfTheData) {
  const TokenStore store = StoreOf({3, 9, 2});
  Packing packing(store, Ids(3), {.max_seq_len = 10, .packing = false, .shuffle = false});
  packing.Pack(77, 5);
  EXPECT_EQ(RowsOf(packing), (std::vector<std::vector<int32_t>>{{0}, {1}, {2}}));
}

TEST(Packing, TakesAPartOfTheSamples) {
  const TokenStore store = StoreOf({3, 9, 2, 4});
  const std::vector<int32_t> part = {1, 3};
  const Packing packing(store, part, {.max_seq_len = 10});
  std::vector<int32_t> seen;
  for (int64_t r = 0; r < packing.rows(); ++r) seen.insert(seen.end(), packing.row(r).begin(), packing.row(r).end());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, part);
  EXPECT_EQ(packing.tokens(), 13);
}

// How often each of `n` samples is in the epoch's rows.
std::vector<int> TimesSeen(const Packing& packing, int64_t n) {
  std::vector<int> seen(static_cast<size_t>(n), 0);
  for (const auto& row : RowsOf(packing)) {
    for (const int32_t id : row) ++seen[static_cast<size_t>(id)];
  }
  return seen;
}

TEST(Packing, WholePassesSeeEachSampleSoOftenInEveryEpoch) {
  const TokenStore store = StoreOf(RandomLengths(4, 100, 40));
  Packing packing(store, Ids(100), {.max_seq_len = 64, .passes = {{0, 1}, {30, 3}, {90, 2}}});
  EXPECT_FALSE(packing.rows_vary());
  EXPECT_EQ(SamplesPerEpoch(Ids(100), {{0, 1}, {30, 3}, {90, 2}}), 30 + 180 + 20);
  EXPECT_TRUE(CheckPasses(Ids(100), {{0, 1e6}}).ok());
  EXPECT_FALSE(CheckPasses(Ids(100), {{0, 1}, {30, 1e8}}).ok());
  std::vector<int> wanted(100, 1);
  std::fill(wanted.begin() + 30, wanted.begin() + 90, 3);
  std::fill(wanted.begin() + 90, wanted.end(), 2);
  const int64_t rows = packing.rows();
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    packing.Pack(7, epoch);
    EXPECT_EQ(TimesSeen(packing, 100), wanted);
    EXPECT_EQ(packing.rows(), rows);
  }
}

TEST(Packing, PassesOfOneChangeNothing) {
  const TokenStore store = StoreOf(RandomLengths(5, 200, 40));
  Packing plain(store, Ids(200), {.max_seq_len = 64}),
      sets(store, Ids(200), {.max_seq_len = 64, .passes = {{0, 1}, {77, 1}}});
  for (const int64_t epoch : {0, 5}) {
    plain.Pack(3, epoch);
    sets.Pack(3, epoch);
    EXPECT_EQ(RowsOf(plain), RowsOf(sets));
  }
}

TEST(Packing, PartsOfPassesTakeTurnsSoThatAllSamplesAreSeenEquallyOften) {
  constexpr int64_t kSamples = 100;  // 40 seen 0.3 times, 60 seen 2.5 times an epoch
  const TokenStore store = StoreOf(RandomLengths(6, kSamples, 40));
  const std::vector<SamplePasses> passes = {{0, 0.3}, {40, 2.5}};
  Packing packing(store, Ids(kSamples), {.max_seq_len = 64, .passes = passes});
  EXPECT_TRUE(packing.rows_vary());
  EXPECT_EQ(SamplesPerEpoch(Ids(kSamples), passes), 12 + 150);
  std::vector<int> seen(kSamples, 0);
  std::vector<int> first;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    packing.Pack(11, epoch);
    const std::vector<int> now = TimesSeen(packing, kSamples);
    EXPECT_EQ(std::accumulate(now.begin(), now.begin() + 40, 0), 12);
    for (int64_t i = 0; i < 40; ++i) EXPECT_LE(now[static_cast<size_t>(i)], 1);
    for (int64_t i = 40; i < 100; ++i)
      EXPECT_TRUE(now[static_cast<size_t>(i)] == 2 || now[static_cast<size_t>(i)] == 3);
    for (size_t i = 0; i < seen.size(); ++i) seen[i] += now[i];
    if (epoch == 0) first = now;
    EXPECT_EQ(now == first, epoch == 0 || epoch == 10) << "the next epoch takes other samples";
  }
  std::vector<int> wanted(kSamples, 3);
  std::fill(wanted.begin() + 40, wanted.end(), 25);
  EXPECT_EQ(seen, wanted);
  packing.Pack(12, 0);
  EXPECT_NE(TimesSeen(packing, kSamples), first) << "another seed takes other samples";
  packing.Pack(11, 0);
  EXPECT_EQ(TimesSeen(packing, kSamples), first);
}

TEST(Packing, PassesCountWithinThePartOfTheSamplesThatIsGiven) {
  const TokenStore store = StoreOf(std::vector<int64_t>(10, 3));
  const std::vector<int32_t> part = {1, 2, 8};  // of the second set only sample 8, of the third none
  const Packing packing(store, part, {.max_seq_len = 8, .passes = {{0, 1}, {5, 0.2}, {9, 4}}});
  EXPECT_EQ(TimesSeen(packing, 10), (std::vector<int>{0, 1, 1, 0, 0, 0, 0, 0, 1, 0})) << "at least one of a set";
}

TEST(Packing, NoSamplesMakeNoRows) {
  const Packing packing(TokenStore(), {}, {.max_seq_len = 10});
  EXPECT_EQ(packing.rows(), 0);
  EXPECT_EQ(packing.efficiency(), 0);
}

// Samples should share their row with different ones in each epoch.
TEST(Packing, SamplesShareRowsWithDifferentOnesInEachEpoch) {
  const TokenStore store = StoreOf(std::vector<int64_t>(100, 5));
  Packing packing(store, Ids(100), {.max_seq_len = 10});
  std::map<std::pair<int32_t, int32_t>, int> pairs;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    packing.Pack(1, epoch);
    for (const auto& row : RowsOf(packing)) ++pairs[std::minmax(row[0], row[1])];
  }
  EXPECT_GT(pairs.size(), 400u);  // of 500 pairs, some 22 by chance twice
}

TEST(PackingDeathTest, ASampleThatFitsNoRowIsABug) {
  const TokenStore store = StoreOf({11});
  EXPECT_DEATH(Packing(store, Ids(1), {.max_seq_len = 10}), "sample 0 of 11 tokens in rows of 10");
}

// Attention stays within a part.
TEST(Packing, CountsThePairsThatPartsAttendTo) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>(4, 1), std::vector<uint8_t>(4));
  made.Add(std::vector<int32_t>(5, 1), std::vector<uint8_t>(5), {}, std::vector<size_t>{2});
  made.Add(std::vector<int32_t>(3, 1), std::vector<uint8_t>(3));
  const TokenStore store = made.Store();
  const Packing packing(store, std::vector<int32_t>{0, 1, 2}, {.max_seq_len = 16});
  EXPECT_EQ(packing.attended_pairs(), 10 + (3 + 6) + 6);
}

}  // namespace
}  // namespace temper::packing_test
