// recompute: trades arithmetic, or traffic between ranks, for memory. Every block's forward is run again just before
// its backward, so that between the two only the block's inputs are kept. Nodes are cloned, never changed: clones keep
// their values' names and draw the same random numbers, so losses and gradients keep every bit.
#pragma once

#include "graph/graph.h"

namespace temper {

enum class Recompute : uint8_t { kNone, kBlock };

struct RecomputeSpec {
  Recompute mode = Recompute::kNone;
  // Weights that a block's forward gathered are dropped after it and gathered again for its backward.
  bool gather_weights_again = false;
  // The same for weights that stand before or after the blocks: in a pipeline they would wait for the backward as often
  // as there are micro-batches in flight.
  bool outside_blocks = false;
};

// REQUIRES: a differentiated graph before UpdateInPlace.
Graph RecomputeBlocks(const Graph& graph, const RecomputeSpec& spec);

}  // namespace temper
