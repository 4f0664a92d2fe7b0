#include "graph/rule.h"

#include <fmt/format.h>

namespace temper {

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
  return Corrupt(fmt::format("[{}] wants {} but got ({}) with {}", ToString(op), wanted, got, attributes.ToString()));
}

}  // namespace temper
