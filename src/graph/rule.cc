#include "graph/rule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace temper {
namespace {

const char* NameOf(AttributeSpec::Kind kind) {
  switch (kind) {
    case AttributeSpec::Kind::kFlag:
      return "0 or 1";
    case AttributeSpec::Kind::kSize:
      return "a non-negative integer";
    case AttributeSpec::Kind::kDouble:
      return "a finite number with a point";
    case AttributeSpec::Kind::kString:
      return "a string";
    case AttributeSpec::Kind::kDoubles:
      return "a list of finite numbers";
  }
  return "";
}

bool Fits(const AttributeValue& value, AttributeSpec::Kind kind) {
  const auto* integer = std::get_if<int64_t>(&value);
  const auto* number = std::get_if<double>(&value);
  const auto* list = std::get_if<std::vector<double>>(&value);
  switch (kind) {
    case AttributeSpec::Kind::kFlag:
      return integer != nullptr && (*integer == 0 || *integer == 1);
    case AttributeSpec::Kind::kSize:
      return integer != nullptr && *integer >= 0;
    case AttributeSpec::Kind::kDouble:
      return number != nullptr && std::isfinite(*number);
    case AttributeSpec::Kind::kString:
      return std::holds_alternative<std::string>(value);
    case AttributeSpec::Kind::kDoubles:
      return list != nullptr && std::all_of(list->begin(), list->end(), [](double x) { return std::isfinite(x); });
  }
  return false;
}

Status CheckAttributes(Op op, const Attributes& attributes) {
  const std::span<const AttributeSpec> specs = RuleOf(op).attributes;
  for (const auto& [key, value] : attributes.entries()) {
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&name = key](const AttributeSpec& s) { return name == s.key; });
    if (spec == specs.end()) return Corrupt(fmt::format("[{}] has no attribute '{}'", ToString(op), key));
    if (!Fits(value, spec->kind)) {
      return Corrupt(fmt::format("[{}] attribute '{}' should be {}: {}", ToString(op), key, NameOf(spec->kind),
                                 attributes.ToString()));
    }
  }
  for (const AttributeSpec& spec : specs) {
    if (spec.required && !attributes.Has(spec.key)) {
      return Corrupt(fmt::format("[{}] needs the attribute '{}': {}", ToString(op), spec.key, attributes.ToString()));
    }
  }
  return OkStatus();
}

// The layout in which input `i` of `inputs` may be packed; row-major: in none.
ElementLayout LayoutTaken(const PackedInput& packed, const Attributes& attributes, size_t i, size_t inputs) {
  if (static_cast<int>(i) == packed.input) return packed.layout;
  const bool again = packed.of_gradient != nullptr && attributes.Flag(packed.of_gradient) && i + 1 == inputs;
  return again ? ElementLayout::kRowPairs : ElementLayout::kRowMajor;
}

}  // namespace

Result<Types> InferTypes(Op op, const Types& inputs, const Attributes& attributes) {
  TEMPER_RETURN_IF_ERROR(CheckAttributes(op, attributes));
  const OpRule& rule = RuleOf(op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].packed() && LayoutTaken(rule.packed, attributes, i, inputs.size()) != inputs[i].layout)
      return BadOperands(op, "other layouts", inputs, attributes);
  }
  return rule.infer(inputs, attributes);
}

int OverwritableInput(Op op, const Attributes& attributes, int num_inputs, int output) {
  const OpRule& rule = RuleOf(op);
  const int input = rule.overwrites != nullptr ? rule.overwrites(attributes, num_inputs, output)
                    : output == 0              ? rule.in_place_input
                                               : -1;
  return input < num_inputs ? input : -1;
}

Types TypesOf(const Graph& graph, std::span<const ValueId> ids) {
  Types types;
  types.reserve(ids.size());
  for (ValueId id : ids) types.push_back(graph.value(id).type);
  return types;
}

Cost CostOf(const Graph& graph, const Node& node) {
  return RuleOf(node.op).cost(TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes);
}

Bytes WorkspaceOf(const Graph& graph, const Node& node, int threads) {
  const OpRule& rule = RuleOf(node.op);
  if (rule.workspace == nullptr) return {};
  return rule.workspace(TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes, threads);
}

Cost ElementwiseCost(const Types& inputs, const Types& outputs, double flops_per_element) {
  Cost cost{.flops = {flops_per_element * static_cast<double>(outputs[0].shape.elements())}};
  for (const TensorType& t : inputs) cost.read += t.bytes();
  for (const TensorType& t : outputs) cost.written += t.bytes();
  return cost;
}

Status BadOperands(Op op, const char* wanted, const Types& inputs, const Attributes& attributes) {
  std::string got;
  for (const TensorType& t : inputs) got += (got.empty() ? "" : ", ") + t.ToString();
  return Corrupt(fmt::format("[{}] expects {} but got ({}) with {}", ToString(op), wanted, got, attributes.ToString()));
}

const FlowRule* FlowOf(const Node& node) {
  const FlowRule* flow = RuleOf(node.op).flow;
  while (flow != nullptr && flow->flagged != nullptr && node.attributes.Flag(flow->flag)) flow = flow->flagged;
  return flow;
}

}  // namespace temper
