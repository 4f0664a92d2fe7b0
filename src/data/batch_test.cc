#include "data/batch.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "data/token_memory.h"

namespace temper::batch_test {
namespace {

struct Arrays {
  explicit Arrays(size_t n)
      : token(n, -7), target(n, -7), position(n, -7), start(n, -7), length(n, -7), weight(n, -7) {}
  std::vector<ColumnArray> view() {
    std::vector<ColumnArray> columns;
    const auto add = [&](const ColumnSpec& column, auto& values) {
      columns.push_back({FillerOf(column.name), std::as_writable_bytes(std::span(values))});
    };
    add(kTokenColumn, token);
    add(kTargetColumn, target);
    add(kPositionColumn, position);
    add(kDocumentStartColumn, start);
    add(kDocumentLengthColumn, length);
    add(kWeightColumn, weight);
    return columns;
  }
  BatchCounts Fill(const TokenStore& store, const Packing& packing, int64_t first, int64_t rows,
                   const ContextPart& part = {}) {
    return FillBatch(store, packing, first, rows, static_cast<int64_t>(token.size()), view(), part);
  }
  std::vector<int32_t> token, target, position, start, length;
  std::vector<float> weight;
};

std::vector<int32_t> Ids(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TokenStore RandomStore(uint32_t seed, int n, int max) {
  std::mt19937 random(seed);
  MemoryTokens made;
  for (int s = 0; s < n; ++s) {
    std::vector<int32_t> tokens(1 + random() % static_cast<uint32_t>(max));
    std::vector<uint8_t> flags(tokens.size());
    std::vector<TokenWeight> weights(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(random() % 1000);
      flags[i] = random() % 2;
      weights[i] = 1 + random() % kLargestWeight;
    }
    made.Add(tokens, flags, weights);
  }
  return made.Store();
}

TEST(Batch, ArraysOfTwoSamplesByHand) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{11, 12, 13}, std::vector<uint8_t>{1, 0, 1});
  made.Add(std::vector<int32_t>{21, 22}, std::vector<uint8_t>{1, 1});
  const TokenStore store = made.Store();
  const Packing packing(store, Ids(2), {.max_seq_len = 6, .shuffle = false});
  Arrays a(12);
  const BatchCounts counts = a.Fill(store, packing, 0, 1);
  EXPECT_EQ(a.token, (std::vector<int32_t>{11, 12, 13, 21, 22, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(a.target, (std::vector<int32_t>{-1, 13, -1, 22, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(a.position, (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(a.start, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(a.length, (std::vector<int32_t>{3, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(counts.tokens, 5);
  EXPECT_EQ(counts.supervised, 2);
  EXPECT_EQ(counts.weight, 2 * int64_t{kUnitWeight});
  EXPECT_EQ(a.weight, (std::vector<float>{0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

// A pair of answers, and a sample behind it.
TEST(Batch, PartsOfASampleAreDocumentsThatKnowTheirSample) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{11, 12, 11, 13, 14}, std::vector<uint8_t>{0, 1, 0, 1, 1}, {}, std::vector<size_t>{2});
  made.Add(std::vector<int32_t>{21, 22}, std::vector<uint8_t>{0, 1}, {}, std::vector<size_t>{});
  TokenStore store = made.Store();
  store.KeepScores(2, {-1.5f, -2.5f, -3.5f, 0});
  const Packing packing(store, Ids(2), {.max_seq_len = 8, .shuffle = false});
  Arrays a(8);
  std::vector<int32_t> sample_start(8, -7);
  std::vector<float> reference(8, -7);
  std::vector<ColumnArray> columns = a.view();
  columns.push_back({FillerOf("sample_start"), std::as_writable_bytes(std::span(sample_start))});
  columns.push_back({FillerOf("reference"), std::as_writable_bytes(std::span(reference))});
  const BatchCounts counts = FillBatch(store, packing, 0, 1, 8, columns);
  EXPECT_EQ(a.token, (std::vector<int32_t>{11, 12, 11, 13, 14, 21, 22, 0}));
  EXPECT_EQ(a.target, (std::vector<int32_t>{12, -1, 13, 14, -1, 22, -1, -1}));
  EXPECT_EQ(a.position, (std::vector<int32_t>{0, 1, 0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(a.start, (std::vector<int32_t>{0, 0, 2, 2, 2, 5, 5, 7}));
  EXPECT_EQ(a.length, (std::vector<int32_t>{2, 2, 3, 3, 3, 2, 2, 1}));
  EXPECT_EQ(sample_start, (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 5, 7}));
  EXPECT_EQ(reference, (std::vector<float>{-1.5f, -1.5f, -2.5f, -2.5f, -2.5f, -3.5f, -3.5f, 0}));
  EXPECT_EQ(counts.samples, 2);
  EXPECT_EQ(counts.tokens, 7);
  EXPECT_EQ(counts.supervised, 4);
}

TEST(Batch, WeightsAreThoseOfTheTargets) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{11, 12, 13, 14}, std::vector<uint8_t>{0, 1, 0, 1},
           std::vector<TokenWeight>{1, kUnitWeight / 4, 9, kLargestWeight});
  made.Add(std::vector<int32_t>{21, 22}, std::vector<uint8_t>{1, 1});
  const TokenStore store = made.Store();
  const Packing packing(store, Ids(2), {.max_seq_len = 8, .shuffle = false});
  Arrays a(8);
  const BatchCounts counts = a.Fill(store, packing, 0, 1);
  EXPECT_EQ(a.weight, (std::vector<float>{0.25f, 0, 256, 0, 1, 0, 0, 0}));
  EXPECT_EQ(WeightValue(counts.weight), 257.25);
  EXPECT_EQ(FillBatch(store, packing, 0, 1, 8, {}).weight, counts.weight) << "counted whatever a Program reads";
}

TEST(Batch, SamplesAreIsolatedAndNothingIsLost) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const TokenStore store = RandomStore(seed, 60, 20);
    Packing packing(store, Ids(60), {.max_seq_len = 24, .packing = seed % 4 != 3});
    packing.Pack(seed, 1);
    Arrays a(static_cast<size_t>(packing.rows()) * 24);
    const BatchCounts counts = a.Fill(store, packing, 0, packing.rows());
    EXPECT_EQ(counts.tokens, store.total_tokens());
    EXPECT_EQ(counts.supervised, store.total_supervised());
    int64_t targets = 0;
    for (size_t i = 0; i < a.token.size(); ++i) {
      const auto start = static_cast<size_t>(a.start[i]);
      ASSERT_LE(start, i);
      ASSERT_EQ(start / 24, i / 24) << "a document crosses rows";
      ASSERT_EQ(a.position[i], static_cast<int32_t>(i - start));
      ASSERT_EQ(a.position[start], 0);
      for (size_t j = start; j <= i; ++j) ASSERT_EQ(a.start[j], a.start[i]);
      if (a.target[i] < 0) continue;
      ++targets;
      ASSERT_EQ(a.target[i], a.token[i + 1]);
      ASSERT_EQ(a.start[i + 1], a.start[i]) << "a target in another document";
    }
    EXPECT_EQ(targets, store.total_supervised());
  }
}

// Ranks of cp together have exactly the tokens that one rank has of the rows, and count each once.
TEST(Batch, IsSplitOverRanksThatShareRows) {
  const TokenStore store = RandomStore(6, 80, 20);
  Packing packing(store, Ids(80), {.max_seq_len = 24});
  packing.Pack(4, 0);
  const int64_t rows = packing.rows() - 1, places = rows + 1;  // the last row is padding
  Arrays whole(static_cast<size_t>(places) * 24);
  const BatchCounts counts = whole.Fill(store, packing, 1, rows);
  for (const int64_t ranks : {2, 3, 4}) {
    BatchCounts sum;
    for (int64_t index = 0; index < ranks; ++index) {
      const ContextPart part{24, ranks, index};
      Arrays own(static_cast<size_t>(places * 24 / ranks));
      sum += own.Fill(store, packing, 1, rows, part);
      for (size_t i = 0; i < own.token.size(); ++i) {
        const auto place = static_cast<size_t>(part.PlaceOf(static_cast<int64_t>(i)));
        EXPECT_EQ(own.token[i], whole.token[place]) << place;
        EXPECT_EQ(own.target[i], whole.target[place]) << place;
        EXPECT_EQ(own.position[i], whole.position[place]) << place;
        EXPECT_EQ(own.start[i], whole.start[place]) << place;
        EXPECT_EQ(own.length[i], whole.length[place]) << place;
        EXPECT_EQ(own.weight[i], whole.weight[place]) << place;
      }
    }
    EXPECT_EQ(sum.tokens, counts.tokens);
    EXPECT_EQ(sum.supervised, counts.supervised);
    EXPECT_EQ(sum.weight, counts.weight);
  }
}

// However a batch is cut into micro-batches, every token has the same input, target and position.
TEST(Batch, IsIndependentOfTheSplitIntoMicroBatches) {
  const TokenStore store = RandomStore(5, 80, 20);
  Packing packing(store, Ids(80), {.max_seq_len = 24});
  packing.Pack(3, 0);
  const int64_t rows = packing.rows();
  Arrays whole(static_cast<size_t>(rows) * 24);
  const BatchCounts counts = whole.Fill(store, packing, 0, rows);
  for (const int64_t micro : {1, 2, 3, 5}) {
    Arrays all(0);
    BatchCounts sum;
    for (int64_t first = 0; first < rows; first += micro) {
      Arrays part(static_cast<size_t>(micro) * 24);
      const int64_t n = std::min(micro, rows - first);
      sum += part.Fill(store, packing, first, n);
      const auto used = static_cast<int64_t>(n * 24);
      all.token.insert(all.token.end(), part.token.begin(), part.token.begin() + used);
      all.target.insert(all.target.end(), part.target.begin(), part.target.begin() + used);
      all.weight.insert(all.weight.end(), part.weight.begin(), part.weight.begin() + used);
      all.position.insert(all.position.end(), part.position.begin(), part.position.begin() + used);
      for (int64_t i = 0; i < used; ++i) {
        all.start.push_back(part.start[static_cast<size_t>(i)] + static_cast<int32_t>(first * 24));
      }
    }
    EXPECT_EQ(all.token, whole.token);
    EXPECT_EQ(all.target, whole.target);
    EXPECT_EQ(all.weight, whole.weight);
    EXPECT_EQ(all.position, whole.position);
    EXPECT_EQ(all.start, whole.start);
    EXPECT_EQ(sum.tokens, counts.tokens);
    EXPECT_EQ(sum.supervised, counts.supervised);
    EXPECT_EQ(sum.weight, counts.weight);
  }
}

TEST(Batch, ShorterRowsHoldWhatLongerOnesDo) {
  const TokenStore store = RandomStore(5, 6, 16);
  const Packing packing(store, Ids(6), {.max_seq_len = 64, .packing = false, .shuffle = false});
  Arrays whole(3 * 64), shorter(3 * 16);
  const BatchCounts counts = whole.Fill(store, packing, 2, 3);
  const BatchCounts same = shorter.Fill(store, packing, 2, 3, {.row = 16});
  EXPECT_EQ(same.tokens, counts.tokens);
  EXPECT_EQ(same.supervised, counts.supervised);
  EXPECT_EQ(same.weight, counts.weight);
  EXPECT_EQ(same.samples, counts.samples);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t i = 0; i < 16; ++i) {
      const size_t in_whole = row * 64 + i, at = row * 16 + i;
      EXPECT_EQ(shorter.token[at], whole.token[in_whole]);
      EXPECT_EQ(shorter.target[at], whole.target[in_whole]);
      EXPECT_EQ(shorter.weight[at], whole.weight[in_whole]);
      EXPECT_EQ(shorter.position[at], whole.position[in_whole]);
      EXPECT_EQ(shorter.length[at], whole.length[in_whole]);
      EXPECT_EQ(shorter.start[at], whole.start[in_whole] - static_cast<int32_t>(row * 48));
    }
  }
}

TEST(Batch, NoRowsAreAllPadding) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{1, 2}, std::vector<uint8_t>{1, 1});
  const TokenStore store = made.Store();
  const Packing packing(store, Ids(1), {.max_seq_len = 4});
  Arrays a(4);
  const BatchCounts counts = a.Fill(store, packing, 1, 0);
  EXPECT_EQ(counts.tokens + counts.supervised, 0);
  EXPECT_EQ(a.target, std::vector<int32_t>(4, -1));
  EXPECT_EQ(a.start, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(BatchDeathTest, ArraysOfAnotherShapeAreABug) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{1, 2}, std::vector<uint8_t>{1, 1});
  const TokenStore store = made.Store();
  const Packing packing(store, Ids(1), {.max_seq_len = 4});
  Arrays a(6);
  EXPECT_DEATH(a.Fill(store, packing, 0, 1), "rows of 4 in arrays of 6");
  Arrays b(4);
  EXPECT_DEATH(b.Fill(store, packing, 0, 2), "");
  Arrays c(1);
  EXPECT_DEATH(c.Fill(store, packing, 0, 1, {.row = 1}), "row 0 in 1 tokens");
}

}  // namespace
}  // namespace temper::batch_test
