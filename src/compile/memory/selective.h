// selective: which forward nodes are worth running again in the backward, so that what they made need not be kept.
//
// A norm's result can be made again from its input, which its own gradient keeps anyway; a rotated query only from one
// that is not rotated, of the same size: nothing is won. Whether a node pays thus depends on what else is kept. For all
// nodes of a block together that is a minimum cut: between what only products and attention can make and what the
// backward needs, through the cheapest values to keep.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace temper {

// Per node: whether it is a forward node of a block to be cloned before the block's backward. Bytes are what counts;
// what a clone moves decides between choices that free about the same. Linear in the blocks.
// REQUIRES: a differentiated graph.
std::vector<bool> CheapToRecompute(const Graph& graph);

}  // namespace temper
