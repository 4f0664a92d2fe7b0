// pipeline_balance: which blocks each chunk of a pipeline gets. The slowest chunk sets the pace of all, and the last
// has the head and its loss beside its blocks: where the vocabulary is large that is the work of several blocks.
#pragma once

#include <vector>

#include "base/status.h"
#include "graph/graph.h"

namespace temper {

// What a micro-batch costs, forward and backward, by where it is spent.
struct BlockCosts {
  double before = 0, after = 0;  // what stands before and after the blocks
  std::vector<double> blocks;
};

// In FLOPs. REQUIRES: the forward graph of one rank of unlimited memory, so that all ranks find the same.
BlockCosts CostsOfBlocks(const Graph& forward);

// The chunk of each block: `layers` says how many blocks each chunk has; where it is empty they are dealt so that the
// chunk with the most work has as little as can be. Errors: more chunks than blocks, layers that do not add up, a chunk
// between two others without a block; with what would work.
Result<std::vector<int>> ChunkOfBlocks(const BlockCosts& costs, int chunks, const std::vector<int>& layers);

}  // namespace temper
