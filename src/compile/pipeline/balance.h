// balance: assigns blocks to the chunks of a pipeline. The slowest chunk sets the pace of all, and the last chunk also
// computes the head and the loss: with a large vocabulary, as much work as several blocks.
#pragma once

#include <vector>

#include "base/status.h"
#include "graph/graph.h"

namespace temper {

// Cost of a micro-batch, forward and backward, by block.
struct BlockCosts {
  double before = 0, after = 0;  // outside the blocks
  std::vector<double> blocks;
};

// In FLOPs. REQUIRES: the forward graph of one rank of unlimited memory, so that all ranks get the same costs.
BlockCosts CostsOfBlocks(const Graph& forward);

// The chunk of each block. `layers`: the number of blocks of each chunk; if empty,
// the largest work of a chunk is minimized. Errors: more chunks than blocks, layers
// that do not add up, an inner chunk without a block; with numbers that would work.
Result<std::vector<int>> ChunkOfBlocks(const BlockCosts& costs, int chunks, const std::vector<int>& layers);

}  // namespace temper
