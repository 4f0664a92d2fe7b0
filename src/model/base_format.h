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
  // For devices whose libraries multiply only the type that is computed in: products first write all of a weight's
  // numbers to scratch. false: kernels dequantise the pieces that they pack.
  bool dequantised_first = false;
};

// REQUIRES: `base` is computed in the graph's type; none of the weights is trained; only products use them.
void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph);

}  // namespace temper
