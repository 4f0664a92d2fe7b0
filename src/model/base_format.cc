#include "model/base_format.h"

#include <algorithm>
#include <map>
#include <string>

#include "format/trained_copy.h"
#include "format/trained_rows.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "model/forward.h"
#include "model/quantisation_config.h"

namespace temper {
namespace {

// Where an op reads a weight that may be quantised.
int WeightInput(Op op) {
  return op == Op::kEmbedding ? 0 : 1;
}

// Which weights change, and to which format.
std::map<std::string, ElementFormat> Changes(const BaseFormat& base, const std::vector<LinearModule>& modules,
                                             const Graph& graph) {
  std::map<std::string, ElementFormat> formats;
  for (const LinearModule& module : modules) {
    if (module.is_parameter && module.matrices == 0) continue;
    if (!module.is_head && IsLeft(module, module.matrices > 0 ? base.experts_left : base.modules_left)) continue;
    std::optional<ElementFormat> format = module.matrices > 0 ? base.experts
                                          : module.is_head    ? base.embedding
                                                              : base.modules;
    if (const auto own = base.of_modules.find(NameInConfig(module)); own != base.of_modules.end() && !module.is_head) {
      format = own->second;
    }
    if (!format) continue;
    for (const std::string& name : module.weights) formats.emplace(name, *format);
  }
  if (!base.embedding) return formats;
  // What the head adds for trained rows has to take back what the table gives for them: the same numbers.
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const std::string& name = graph.value(id).name;
    if (name.starts_with(kAdapterPrefix) && name.ends_with(kOriginalRows)) formats.emplace(name, *base.embedding);
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::kEmbedding || graph.value(node.inputs[1]).name != kTokenInput) continue;
    const std::string& table = graph.value(node.inputs[0]).name;
    if (!table.starts_with(kAdapterPrefix)) formats.emplace(table, *base.embedding);
  }
  return formats;
}

}  // namespace

std::optional<ElementFormat> ExpertsFormat(const ModelFacts& facts, std::optional<ElementFormat> modules, DType dtype) {
  if (!facts.experts_format) return modules;
  // What files have of linear modules, too, is quantised once more where that is asked for.
  if (modules && facts.experts_format == facts.modules_format) return modules;
  const bool kept = facts.experts_format->quantised() && facts.experts_format->compute() == dtype;
  return kept ? facts.experts_format : std::nullopt;
}

BaseFormat BaseFormatOf(const ModelFacts& facts, std::optional<ElementFormat> modules,
                        std::optional<ElementFormat> embedding, DType dtype, bool dequantised_first) {
  BaseFormat base = {.modules = modules,
                     .embedding = embedding,
                     .experts = ExpertsFormat(facts, modules, dtype),
                     .experts_left = {},
                     .dequantised_first = dequantised_first};
  // What is asked for and what files have is the same: what they leave stays, too.
  if (modules && modules == facts.modules_format) base.modules_left = facts.not_converted;
  if (base.experts == facts.experts_format) base.experts_left = facts.not_converted;
  if (!modules && facts.modules_format && facts.modules_format->compute() == dtype) {
    base.of_modules = facts.module_formats;
    if (base.of_modules.empty()) base.modules = facts.modules_format;
    base.modules_left = facts.not_converted;
  }
  return base;
}

void KeepBaseAs(const BaseFormat& base, const std::vector<LinearModule>& modules, Graph* graph) {
  const std::map<std::string, ElementFormat> formats = Changes(base, modules, *graph);
  for (Node& node : graph->nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value& value = graph->value(node.inputs[i]);
      const auto change = formats.find(value.name);
      if (value.role != Role::kWeight || change == formats.end()) continue;
      const bool reads_it = node.op == Op::kLinear || node.op == Op::kEmbedding || IsLoss(node.op) ||
                            node.op == Op::kRowSquares || node.op == Op::kGroupedLinear;
      TEMPER_CHECK(reads_it && static_cast<int>(i) == WeightInput(node.op) && !value.trainable)
          << value.name << " is used by " << ToString(node.op);
      const ElementFormat format = change->second;
      TEMPER_CHECK(value.type.dtype.compute() == format.compute()) << value.name << " " << value.type.ToString();
      value.type.dtype = format;
      // Grouped products have no kernels on devices that would want that.
      const bool first = base.dequantised_first && node.op != Op::kEmbedding && node.op != Op::kGroupedLinear;
      if (first) node.attributes.Set("dequantise", int64_t{1});
    }
  }
}

}  // namespace temper
