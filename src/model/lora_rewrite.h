// LoRA (Hu et al. 2021) with PEFT's semantics, as a rewrite of a forward graph:
//   linear(x, W)  becomes  linear(x, W) + s * linear(linear(dropout(x), A), B),  W frozen,
// s = alpha / r, or alpha / sqrt(r) for rank-stabilised LoRA. On the head the branch becomes linear_cross_entropy's
// second pair of operands. In a fused projection, each value has its own rows of B; all share A and the dropout of x.
// Products of experts get grouped products of A and B, unstacked. Adapter values have PEFT's tensor names.
//
// With magnitudes (DoRA, Liu et al. 2024) the sum's columns are scaled before the bias is added:
//   m / ||W + s B A|| * (linear(x, W) + s * linear(linear(x, A), B)), the norm of each row a constant to the gradient.
// In training with dropout, as PEFT has it, the base's product of x stays as it is, and what scaling changes of it sees
// the dropped x, which takes the base's product once more:
//   linear(x, W) + (m / norm - 1) * linear(dropout(x), W) + m / norm * s * linear(linear(dropout(x), A), B).
#pragma once

#include <vector>

#include "format/lora_module.h"
#include "graph/graph.h"

namespace temper {

// Where the squares of DoRA's norms come from: adapters change from step to step, or they never do, and whoever loads
// them fills in the squares of the sums (Part::squares).
enum class RowNorms : uint8_t { kComputed, kLoaded };

// REQUIRES: `targets` from ResolveLora on modules of the same model. Dropout 0 adds no dropout node.
Graph AddLora(Graph forward, const std::vector<LoraModule>& targets, double dropout,
              RowNorms norms = RowNorms::kComputed);

}  // namespace temper
