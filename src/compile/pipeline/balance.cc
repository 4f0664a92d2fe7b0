#include "compile/pipeline/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compile/step/differentiate.h"
#include "graph/rule.h"

namespace temper {
namespace {

// The first and last chunk have the embedding and the head; a chunk in between needs at least one block.
int FewestBlocks(int chunk, int chunks) {
  return chunk == 0 || chunk + 1 == chunks ? 0 : 1;
}

// Numbers of blocks per chunk that minimize the largest cost of a chunk, and then the sum of squares, which evens out
// the others. O(chunks x blocks^2).
std::vector<int> Balanced(const BlockCosts& costs, int chunks) {
  const int blocks = static_cast<int>(costs.blocks.size());
  std::vector<double> sum_to = {0};
  for (const double cost : costs.blocks) sum_to.push_back(sum_to.back() + cost);
  using Score = std::pair<double, double>;  // largest cost, sum of squares
  struct Best {
    Score score;
    int blocks = -1;  // of the last chunk; -1: impossible
  };
  // best[c][b]: the first c chunks have the first b blocks.
  std::vector<std::vector<Best>> best(static_cast<size_t>(chunks) + 1,
                                      std::vector<Best>(static_cast<size_t>(blocks) + 1));
  best[0][0].blocks = 0;
  for (int c = 0; c < chunks; ++c) {
    for (int end = 0; end <= blocks; ++end) {
      Best& to = best[static_cast<size_t>(c) + 1][static_cast<size_t>(end)];
      for (int begin = 0; begin + FewestBlocks(c, chunks) <= end; ++begin) {
        const Best& from = best[static_cast<size_t>(c)][static_cast<size_t>(begin)];
        if (from.blocks < 0) continue;
        double cost = sum_to[static_cast<size_t>(end)] - sum_to[static_cast<size_t>(begin)];
        if (c == 0) cost += costs.before;
        if (c + 1 == chunks) cost += costs.after;
        const Score score = {std::max(from.score.first, cost), from.score.second + cost * cost};
        if (to.blocks < 0 || score < to.score) to = {score, end - begin};
      }
    }
  }
  std::vector<int> counts(static_cast<size_t>(chunks));
  for (int c = chunks, end = blocks; c-- > 0; end -= counts[static_cast<size_t>(c)]) {
    counts[static_cast<size_t>(c)] = best[static_cast<size_t>(c) + 1][static_cast<size_t>(end)].blocks;
  }
  return counts;
}

}  // namespace

BlockCosts CostsOfBlocks(const Graph& forward) {
  const Graph step = Differentiate(forward, /*accumulate=*/false);
  BlockCosts costs;
  for (const Node& node : step.nodes()) {
    const double flops = CostOf(step, node).flops.v;
    if (node.block >= 0) {
      costs.blocks.resize(std::max(costs.blocks.size(), static_cast<size_t>(node.block) + 1));
      costs.blocks[static_cast<size_t>(node.block)] += flops;
    } else {
      (node.block == kBlockBefore ? costs.before : costs.after) += flops;
    }
  }
  return costs;
}

Result<std::vector<int>> ChunkOfBlocks(const BlockCosts& costs, int chunks, const std::vector<int>& layers) {
  const int blocks = static_cast<int>(costs.blocks.size());
  if (layers.empty() && blocks < chunks) {
    return InvalidArgument(
        fmt::format("mesh.pp: {} blocks are too few for {} runs of blocks (mesh.pp x "
                    "mesh.pp_chunks); at most {} work",
                    blocks, chunks, blocks));
  }
  const std::vector<int> counts = layers.empty() ? Balanced(costs, chunks) : layers;
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  if (static_cast<int>(counts.size()) != chunks || sum != blocks) {
    return InvalidArgument(
        fmt::format("mesh.pp_layers: {} for {} runs of blocks (mesh.pp x mesh.pp_chunks) add up to "
                    "{}; the model has {} blocks",
                    fmt::join(counts, ", "), chunks, sum, blocks));
  }
  std::vector<int> chunk_of;
  for (int c = 0; c < chunks; ++c) {
    const int count = counts[static_cast<size_t>(c)], at_least = FewestBlocks(c, chunks);
    if (count < at_least) {
      return InvalidArgument(fmt::format("mesh.pp_layers: {}: run {} needs at least {} block(s)",
                                         fmt::join(counts, ", "), c + 1, at_least));
    }
    chunk_of.insert(chunk_of.end(), static_cast<size_t>(count), c);
  }
  return chunk_of;
}

}  // namespace temper
