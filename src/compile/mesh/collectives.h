// collectives: where a rank's program talks to others, and when.
//
//   coalesce   a block's weights are gathered by one node, its gradients reduced by one: a synchronisation per block,
//              not per tensor
//   background those nodes leave the order of computing: a gather is issued while the block before is computed, a
//              reduction ends while the block after is. Attribute `background`; place keeps their operands alive for
//              that long, the executor runs them beside the kernels.
//   soon       what a collective of activations gives is needed at once, but not by all that follows: products that
//              make gradients of weights wait until there is a collective under way for them to hide. In a lane of
//              their own (attribute `soon`), so that they do not wait for weights.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace temper {

// Nodes, by their index, that move weights and gradients of weights between ranks; also those of several that do so one
// after the other, along an axis each.
struct WeightMoves {
  std::vector<bool> gathers;  // a weight, or what of it has been gathered already
  std::vector<bool> reduces;  // the gradient of a whole weight, down to a rank's part of it; terms of one, to their sum
};
WeightMoves FindWeightMoves(const Graph& graph);

struct CollectivesSpec {
  bool background = true;
};

// REQUIRES: a differentiated graph after recompute, before UpdateInPlace.
Graph ScheduleCollectives(Graph graph, const CollectivesSpec& spec);

}  // namespace temper
