// recompute: trades arithmetic, or traffic between ranks, for memory. Results of a block's forward are computed again
// just before its backward needs them, so that fewer are kept between the two. Nodes are cloned, never changed: clones
// keep their values' names and draw the same random numbers, so losses and gradients keep every bit.
#pragma once

#include "graph/graph.h"
#include "settings/memory.h"

namespace temper {

struct RecomputeSpec {
  Recompute mode = Recompute::kNone;
  // Recompute only in the first `blocks` blocks: their activations are kept longest. The last block's backward follows
  // its forward immediately.
  int blocks = kAllBlocks;
  // The last `gathered_blocks` blocks keep the weights that their forward gathered, because they keep them for the
  // shortest time. Others drop them and gather them again for their backward, in every `mode`.
  int gathered_blocks = kAllBlocks;
  // Weights used before or after the blocks are gathered again, too:
  // in a pipeline they would be kept once per micro-batch in flight.
  bool outside_blocks = false;
};

// REQUIRES: a differentiated graph before UpdateInPlace; mode is not kAuto.
Graph RecomputeBlocks(Graph graph, const RecomputeSpec& spec);

}  // namespace temper
