// The format in which a frozen base keeps the weights of its linear modules (base_dtype), as a rewrite of a forward
// graph: their types change, and linear and linear_dx read that format. The head stays as it is computed: the loss
// reads it, and tied embeddings are the same tensor. So do biases, norms and embeddings, which are small.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "model/weight.h"
#include "tensor/element_format.h"

namespace temper {

struct BaseFormat {
  ElementFormat format;
  // Products write a weight's numbers to their scratch before they multiply, as GPUs do, whose libraries multiply bf16.
  // Else they dequantise what they pack.
  bool dequantised_first = false;
};

// REQUIRES: `base` is computed in the graph's type; none of the weights is trained; only products use them.
void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph);

}  // namespace temper
