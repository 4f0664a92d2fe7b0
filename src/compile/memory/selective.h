// selective: chooses the forward nodes worth running again in the backward, so that their results need not be kept.
//
// A norm's result can be recomputed from its input, which is kept anyway for the norm's gradient. A rotated query can
// only be recomputed from the unrotated one, which has the same size: nothing is saved. So the benefit of a node
// depends on the other values kept. For all nodes of a block together this is a minimum cut between the results of
// products and attention and the values that the backward needs, through the cheapest values to keep.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace temper {

// Per node: whether it is a forward node of a block to be cloned before the block's backward. Minimizes the bytes kept;
// the bytes that clones move decide between choices that free about the same. Linear in the number of blocks.
// REQUIRES: a differentiated graph.
std::vector<bool> CheapToRecompute(const Graph& graph);

}  // namespace temper
