// LoRA (Hu et al. 2021) with PEFT's semantics, as a rewrite of a forward graph:
//   linear(x, W)  becomes  linear(x, W) + s * linear(linear(dropout(x), A), B),  W frozen,
// s = alpha / r, or alpha / sqrt(r) for rank-stabilised LoRA. On the head the branch becomes linear_cross_entropy's
// second pair of operands. In a fused projection, each value has its own rows of B; all share A and the dropout of x.
// Products of experts get grouped products of A and B, unstacked. Adapter values have PEFT's tensor names.
#pragma once

#include <vector>

#include "format/lora_module.h"
#include "graph/graph.h"

namespace temper {

// REQUIRES: `targets` from ResolveLora on modules of the same model. Dropout 0 adds no dropout node.
Graph AddLora(Graph forward, const std::vector<LoraModule>& targets, double dropout);

}  // namespace temper
