// differentiate: appends the backward pass of one micro-batch to its forward graph.
//
// The graph's one linear_cross_entropy is the root, seeded with 1 per supervised token: gradients are of the loss
// *sum*. Only paths that reach a trainable value are followed, so frozen weights cost no gradient and keep no
// activation alive.
//
// The gradient of trainable value W is a chain of values that all share one f32 buffer named "grad:W":
//   accumulate == false  the first contribution writes it (the first micro-batch of a step);
//   accumulate == true   a source "grad:W" of role kGradient is updated (every later micro-batch).
#pragma once

#include "graph/graph.h"

namespace temper {

// REQUIRES: `forward` verifies, has exactly one linear_cross_entropy, and a trainable value reaches it.
Graph Differentiate(Graph forward, bool accumulate);

}  // namespace temper
