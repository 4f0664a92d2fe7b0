#include "compile/layout/timeline.h"

#include "base/check.h"
#include "graph/rule.h"

namespace temper {

Tier TierOf(const Graph& graph, const Node& node) {
  const std::vector<ValueId>& operands = node.outputs.empty() ? node.inputs : node.outputs;
  return operands.empty() ? Tier::kDevice : graph.value(operands[0]).tier;
}

std::vector<ValueId> Timeline::Append(const Graph& graph, std::span<const ValueId> same) {
  TEMPER_CHECK(same.empty() || std::ssize(same) == graph.num_values()) << same.size() << " of " << graph.num_values();
  std::vector<ValueId> ids(static_cast<size_t>(graph.num_values()));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const auto at = static_cast<size_t>(id);
    const bool is_known = !same.empty() && same[at] != kNoValue;
    ids[at] = is_known ? same[at] : num_values();
    const temper::Value& v = graph.value(id);
    if (!is_known) values_.push_back({v.type.bytes(), v.role, v.tier});
  }
  updates_.resize(values_.size(), kNoValue);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const ValueId updated = graph.value(id).updates;
    if (updated != kNoValue)
      updates_[static_cast<size_t>(ids[static_cast<size_t>(id)])] = ids[static_cast<size_t>(updated)];
  }
  nodes_.reserve(nodes_.size() + graph.nodes().size());
  for (const temper::Node& node : graph.nodes()) {
    const bool may_be_beside = IsMove(node.op) || IsCollective(node.op) || IsTransfer(node.op);
    nodes_.push_back({.op = node.op,
                      .phase = node.phase,
                      .tier = TierOf(graph, node),
                      .is_beside = may_be_beside && node.attributes.Flag("background"),
                      .block = node.block,
                      .scratch = WorkspaceOf(graph, node, threads_),
                      .first_id = std::ssize(ids_),
                      .inputs = static_cast<int32_t>(node.inputs.size()),
                      .outputs = static_cast<int32_t>(node.outputs.size())});
    for (const auto* list : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *list) ids_.push_back(ids[static_cast<size_t>(id)]);
    }
  }
  return ids;
}

std::vector<ValueId> RootsOf(std::span<const ValueId> updates) {
  std::vector<ValueId> roots(updates.size(), kNoValue), chain;
  for (ValueId id = 0; id < std::ssize(updates); ++id) {
    ValueId at = id;
    for (; roots[static_cast<size_t>(at)] == kNoValue && updates[static_cast<size_t>(at)] != kNoValue;) {
      chain.push_back(at);
      at = updates[static_cast<size_t>(at)];
    }
    if (roots[static_cast<size_t>(at)] != kNoValue) at = roots[static_cast<size_t>(at)];
    roots[static_cast<size_t>(at)] = at;
    for (const ValueId link : chain) roots[static_cast<size_t>(link)] = at;
    chain.clear();
  }
  return roots;
}

}  // namespace temper
