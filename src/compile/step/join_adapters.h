// join_adapters: makes adapters part of the products that they add to. Their arithmetic is a few steps of k; as
// products of their own they would read and write y and d_x once more. For kernels that take a second pair of operands
// (graph/ops/linear_operands.h).
//
//   y = x W^T, then y + s h B^T            ->  linear of both pairs; s goes to h, which was x A^T
//   d_x = d_y W, ..., then d_x + d_h A     ->  linear_dx of both pairs, for each d_h that was made of a d_y before it
//
// A base product that is scaled itself (Granite's) keeps its factor, of both pairs: h and d_h are then made without it,
// and the gradients of A and B take it. Every sum is rounded once, where it was rounded twice. Adapters with dropout
// join forward only.
#pragma once

#include "graph/graph.h"

namespace temper {

// REQUIRES: after differentiation and recompute, before UpdateInPlace.
Graph JoinAdapters(Graph graph);

}  // namespace temper
