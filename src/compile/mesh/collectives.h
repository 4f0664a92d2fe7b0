// collectives: decides where and when a rank's program communicates with other ranks.
//
//   coalesce   one node gathers all weights of a block, one reduces all its gradients: one synchronisation per block,
//              not per tensor
//   background these nodes run beside the kernels: a gather is issued while the block before is computed, a reduction
//              ends while the block after is computed. They have the attribute `background`; the layout keeps their
//              operands alive for that long.
//   soon       the result of a collective of activations is needed at once, but not by all following nodes: products
//              that make gradients of weights are delayed until they can hide a collective. These collectives have
//              their own lane (attribute `soon`), so that they do not wait for those of weights.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace temper {

// Per node index: whether the node moves weights, or gradients of weights, between ranks. Includes every node of a
// chain that moves them along one axis after another.
struct WeightMoves {
  std::vector<bool> gathers;  // a weight, or a partly gathered weight
  std::vector<bool> reduces;  // a whole weight's gradient to a rank's part of it; terms of a gradient to their sum
};
WeightMoves FindWeightMoves(const Graph& graph);

struct CollectivesSpec {
  bool background = true;
};

// REQUIRES: a differentiated graph after recompute, before UpdateInPlace.
Graph ScheduleCollectives(Graph graph, const CollectivesSpec& spec);

}  // namespace temper
