// recompute: trades arithmetic, or traffic between ranks, for memory. What a block's forward made is made again just
// before its backward needs it, so that between the two less is kept. Nodes are cloned, never changed: clones keep
// their values' names and draw the same random numbers, so losses and gradients keep every bit.
#pragma once

#include <limits>
#include <string_view>

#include "graph/graph.h"

namespace temper {

enum class Recompute : uint8_t {
  kAuto,  // whichever makes the step fastest within the limits of memory (compile/memory/memory_policy.h); without any,
          // none
  kNone,
  kSelective,  // what is cheap: norms, activations, rope, dropout, casts; never a product or attention
  kBlock,      // all: between a block's forward and its backward only the block's inputs are kept
};

std::string_view ToString(Recompute mode);  // "selective"

inline constexpr int kAllBlocks = std::numeric_limits<int>::max();

struct RecomputeSpec {
  Recompute mode = Recompute::kNone;
  // Only the first so many blocks: what they keep is kept longest. The last one's backward follows its forward at once.
  int blocks = kAllBlocks;
  // The last so many blocks keep the weights that their forward gathered, which is shortest there. Others drop them and
  // gather them again for their backward, whatever `mode` says of other nodes.
  int gathered_blocks = kAllBlocks;
  // And so do weights that stand before or after the blocks: in a pipeline they would wait for the backward as often
  // as there are micro-batches in flight.
  bool outside_blocks = false;
};

// REQUIRES: a differentiated graph before UpdateInPlace; a mode that is chosen, not kAuto.
Graph RecomputeBlocks(Graph graph, const RecomputeSpec& spec);

}  // namespace temper
