// fuse: merges neighbouring nodes of a forward graph where one kernel does both with fewer passes over memory.
// Runs before differentiate and recompute, so that both see what is executed.
// Like all passes it takes the graph that it changes by value: who needs it no more moves it in, and nothing is copied.
//
//   linear + add of the residual  ->  linear with acc
#pragma once

#include "graph/graph.h"

namespace temper {

Graph Fuse(Graph graph);

// REQUIRES: after recompute. Lets an output overwrite an input that dies there, where the op allows it
// (OpRule::in_place_input): fewer live bytes, same bits.
Graph UpdateInPlace(Graph graph);

}  // namespace temper
