#include "compile/pipeline/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::balance_test {
namespace {

BlockCosts Alike(int blocks, double before = 0, double after = 0) {
  return {before, after, std::vector<double>(static_cast<size_t>(blocks), 1.0)};
}

std::vector<int> Counts(const BlockCosts& costs, int chunks, const std::vector<int>& layers = {}) {
  const auto chunk_of = ChunkOfBlocks(costs, chunks, layers);
  TEMPER_CHECK(chunk_of.ok()) << chunk_of.status().message();
  std::vector<int> counts(static_cast<size_t>(chunks));
  for (const int chunk : *chunk_of) ++counts[static_cast<size_t>(chunk)];
  return counts;
}

// The cost of the most expensive chunk.
double Worst(const BlockCosts& costs, const std::vector<int>& counts) {
  double worst = 0;
  size_t block = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    double sum = (c == 0 ? costs.before : 0) + (c + 1 == counts.size() ? costs.after : 0);
    for (int i = 0; i < counts[c]; ++i) sum += costs.blocks[block++];
    worst = std::max(worst, sum);
  }
  return worst;
}

TEST(ChunkOfBlocks, BlocksOfEqualCostAreSplitEvenly) {
  EXPECT_EQ(Counts(Alike(5), 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(Counts(Alike(8), 4), (std::vector<int>{2, 2, 2, 2}));
}

TEST(ChunkOfBlocks, TheHeadCountsByItsCost) {
  EXPECT_EQ(Counts(Alike(8, 0, 2), 2), (std::vector<int>{5, 3}));
  EXPECT_EQ(Counts(Alike(10, 0, 2), 4), (std::vector<int>{3, 3, 3, 1}));
  EXPECT_EQ(Counts(Alike(4, 0, 9), 2), (std::vector<int>{4, 0})) << "a head that costs more than all blocks";
  EXPECT_EQ(Counts(Alike(8, 2, 0), 2), (std::vector<int>{3, 5})) << "so do the nodes before the blocks";
}

// Compared with all possible ways.
TEST(ChunkOfBlocks, NoOtherSplitHasACheaperWorstChunk) {
  for (const int chunks : {2, 3, 4}) {
    for (int seed = 0; seed < 20; ++seed) {
      BlockCosts costs = Alike(7, seed % 3, seed % 5);
      for (size_t b = 0; b < costs.blocks.size(); ++b) costs.blocks[b] = 1 + (static_cast<int>(b) * 7 + seed * 5) % 4;
      double best = 1e9;
      std::vector<int> counts(static_cast<size_t>(chunks));
      const std::function<void(size_t, int)> deal = [&](size_t c, int left) {
        if (c + 1 == counts.size()) {
          counts[c] = left;
          best = std::min(best, Worst(costs, counts));
          return;
        }
        for (counts[c] = c == 0 ? 0 : 1; counts[c] <= left; ++counts[c]) deal(c + 1, left - counts[c]);
      };
      deal(0, 7);
      EXPECT_EQ(Worst(costs, Counts(costs, chunks)), best) << chunks << " chunks, seed " << seed;
    }
  }
}

TEST(ChunkOfBlocks, FollowsLayersAndRefusesThoseThatDoNotFit) {
  EXPECT_EQ(Counts(Alike(5, 0, 3), 2, {4, 1}), (std::vector<int>{4, 1}));
  EXPECT_EQ(Counts(Alike(3), 3, {0, 3, 0}), (std::vector<int>{0, 3, 0})) << "the ends have table and head";
  const auto error = [](int blocks, int chunks, std::vector<int> layers) {
    const auto result = ChunkOfBlocks(Alike(blocks), chunks, layers);
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_EQ(error(3, 4, {}),
            "mesh.pp: 3 blocks are too few for 4 runs of blocks (mesh.pp x mesh.pp_chunks); at most 3 work");
  EXPECT_EQ(error(5, 2, {2, 2}),
            "mesh.pp_layers: 2, 2 for 2 runs of blocks (mesh.pp x mesh.pp_chunks) add up to 4; the model has 5 blocks");
  EXPECT_NE(error(5, 2, {5}), "");
  EXPECT_EQ(error(4, 3, {2, 0, 2}), "mesh.pp_layers: 2, 0, 2: run 2 needs at least 1 block(s)");
}

// Two blocks of one product of 8 x 8 on 4 tokens, and a head of 8 x 24 with its loss.
TEST(CostsOfBlocks, CountsTheWorkOfEachBlockAndTheHead) {
  Graph graph;
  GraphBuilder build(&graph);
  ValueId x = build.Source("x", {DType::kF32, {4, 8}}, Role::kInput);
  const ValueId target = build.TokenInput("target", DType::kI32, 4);
  for (int b = 0; b < 2; ++b) {
    build.EnterBlock(b, "");
    const ValueId w = build.Source("w" + std::to_string(b), {DType::kF32, {8, 8}}, Role::kWeight);
    graph.value(w).trainable = true;
    x = build.Linear(x, w, kNoValue, "y");
  }
  build.EnterBlock(kBlockAfter, "");
  const ValueId head = build.Source("head", {DType::kF32, {24, 8}}, Role::kWeight);
  graph.value(head).trainable = true;
  build.Add(Op::kLinearCrossEntropy, {x, head, target}, {}, "loss", Role::kOutput);
  const BlockCosts costs = CostsOfBlocks(graph);
  ASSERT_EQ(costs.blocks.size(), 2u);
  EXPECT_EQ(costs.before, 0);
  EXPECT_EQ(costs.blocks[1], 3 * 2 * 4 * 8 * 8);
  EXPECT_EQ(costs.blocks[0], 2 * 2 * 4 * 8 * 8) << "the gradient of an input is not needed";
  EXPECT_GE(costs.after, 3 * 2 * 4 * 8 * 24);
}

}  // namespace
}  // namespace temper::balance_test
