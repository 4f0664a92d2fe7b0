// fuse: merges neighbouring nodes of a forward graph if one kernel does both with fewer passes over memory. Runs before
// differentiate and recompute, so that both see the executed nodes. Like all passes it takes the graph that it changes
// by value: callers move the graph in to avoid a copy.
//
//   linear + add of the residual       ->  linear with acc
//   scale of a sum of linears without bias  ->  each linear with scale
//   x A^T of two or three adapters      ->  linears
//
// Products of adapters that ranks gather (fsdp) stay apart: when the first is computed, the second A is not gathered.
#pragma once

#include "graph/graph.h"

namespace temper {

Graph Fuse(Graph graph);

// REQUIRES: after recompute. Lets an output overwrite an input at the input's last use, if the op allows it
// (OpRule::in_place_input): fewer live bytes, same bits.
Graph UpdateInPlace(Graph graph);
// For each value the input that UpdateInPlace lets it overwrite, or kNoValue.
std::vector<ValueId> TakenOver(const Graph& graph);

}  // namespace temper
