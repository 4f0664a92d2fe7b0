// fuse: merges neighbouring nodes of a forward graph if one kernel does both with fewer passes over memory. Runs before
// differentiate and recompute, so that both see the executed nodes. Like all passes it takes the graph that it changes
// by value: callers move the graph in to avoid a copy.
//
//   linear + add of the residual               ->  linear with acc
//   linears of two or three adapters' A on one x  ->  linears
//
// Where ranks gather an adapter before each product the products stay apart: the second A is not there when the first
// is used.
#pragma once

#include "graph/graph.h"

namespace temper {

Graph Fuse(Graph graph);

// REQUIRES: after recompute. Lets an output overwrite an input at the input's last use, if the op allows it
// (OpRule::in_place_input): fewer live bytes, same bits.
Graph UpdateInPlace(Graph graph);
// For each value the input whose memory it takes over there, or kNoValue.
std::vector<ValueId> TakenOver(const Graph& graph);

}  // namespace temper
