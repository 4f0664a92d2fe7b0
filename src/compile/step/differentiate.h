// differentiate: appends the backward pass of one micro-batch to its forward graph.
//
// It starts at the graph's roots and removes them: gradients are those of the *sum*
// of the losses' elements, each times its seed. It follows only paths that reach a
// trainable value, so frozen weights cost no gradient and keep no activation alive.
//
// The gradient of trainable value W is a chain of values that all share one f32 buffer named "grad:W":
//   accumulate == false  the first contribution writes it (the first micro-batch of a step);
//   accumulate == true   a source "grad:W" of role kGradient is updated (every later micro-batch).
#pragma once

#include "graph/graph.h"

namespace temper {

// REQUIRES: `forward` verifies, has a root, and a trainable value reaches each.
Graph Differentiate(Graph forward, bool accumulate);

}  // namespace temper
