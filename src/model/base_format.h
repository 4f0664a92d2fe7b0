// The formats in which a frozen base keeps its large weights, as a rewrite of a forward graph: their types change, and
// the ops that read them read that format. base_dtype is that of linear modules, embedding_dtype that of the token
// embedding and the head, which may be one tensor. Biases, norms and positions, which are small, stay as they are
// computed, and so do parameters that PEFT and bitsandbytes take for no linear modules (routers, stacks of experts),
// and so do copies that are trained beside an adapter (format/trained_copy.h).
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "model/weight.h"
#include "tensor/element_format.h"

namespace temper {

struct BaseFormat {
  std::optional<ElementFormat> modules;    // of linear modules but the head; nullopt: as they are computed
  std::optional<ElementFormat> embedding;  // of the token embedding and the head
  // For devices whose libraries multiply only the type that is computed in: products first write all of a weight's
  // numbers to scratch. false: kernels dequantise the pieces that they pack.
  bool dequantised_first = false;
};

// REQUIRES: `base` is computed in the graph's type; none of the weights is trained.
void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph);

}  // namespace temper
