// The formats in which a frozen base keeps its large weights, as a rewrite of a forward graph: their types change, and
// the ops that read them read that format. base_dtype is that of linear modules and of experts, whose matrices are
// quantised one by one, as the linear modules are that they were in older classes (bitsandbytes 0.49 leaves stacks of
// experts as they are); embedding_dtype is that of the token embedding and the head, which may be one tensor. Biases,
// norms, positions and routers, which are small, stay as they are computed, and so do copies that are trained beside
// an adapter (format/trained_copy.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/model.h"
#include "model/weight.h"
#include "tensor/element_format.h"

namespace temper {

struct BaseFormat {
  std::optional<ElementFormat> modules;    // of linear modules but the head; nullopt: as they are computed
  std::optional<ElementFormat> embedding;  // of the token embedding and the head
  std::optional<ElementFormat> experts;    // of the matrices of experts
  std::map<std::string, ElementFormat> of_modules = {};  // of these modules (NameInConfig), in the place of the above
  // Modules that stay as computed (IsLeft in model/quantisation_config.h): linear ones, and those of experts.
  std::vector<std::string> modules_left = {}, experts_left = {};
  // For devices whose libraries multiply only the type that is computed in: products first write all of a weight's
  // numbers to scratch. false: kernels dequantise the pieces that they pack.
  bool dequantised_first = false;
};

// That of the experts, where linear modules have the format `modules` and the rest is computed in `dtype`. What files
// say of experts counts first: those in MXFP4 stay so where that is computed, and those that bitsandbytes has left as
// they were stay as computed.
std::optional<ElementFormat> ExpertsFormat(const ModelFacts& facts, std::optional<ElementFormat> modules, DType dtype);

// That of a model's base, computed in `dtype`. `modules`, `embedding`: as they are asked for; where nothing is asked
// for linear modules stay as files have them, if that is computed in `dtype`.
BaseFormat BaseFormatOf(const ModelFacts& facts, std::optional<ElementFormat> modules,
                        std::optional<ElementFormat> embedding, DType dtype, bool dequantised_first);

// REQUIRES: `base` is computed in the graph's type; none of the weights is trained.
void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph);

}  // namespace temper
