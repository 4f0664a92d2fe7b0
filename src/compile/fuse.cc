#include "compile/fuse.h"

#include <algorithm>

#include "graph/rule.h"

namespace temper {
namespace {

std::vector<int> CountUses(const Graph& graph) {
  std::vector<int> uses(graph.num_values(), 0);
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.inputs) ++uses[id];
  }
  return uses;
}

bool IsPersistent(Role role) { return role != Role::kActivation; }

}  // namespace

Graph Fuse(const Graph& graph) {
  Graph fused = graph;
  const std::vector<int> uses = CountUses(graph);
  std::vector<int> maker(graph.num_values(), -1);
  std::vector<bool> gone(graph.nodes().size(), false);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (ValueId id : graph.nodes()[i].outputs) maker[id] = static_cast<int>(i);
    const Node& add = graph.nodes()[i];
    if (add.op != Op::kAdd) continue;
    // Either operand may be the product; the other must be ready before the product is made.
    for (int side = 0; side < 2; ++side) {
      const ValueId product = add.inputs[static_cast<size_t>(side)], other = add.inputs[static_cast<size_t>(1 - side)];
      const int at = maker[product];
      if (at < 0 || gone[static_cast<size_t>(at)] || uses[product] != 1 || maker[other] > at) continue;
      Node& linear = fused.nodes()[static_cast<size_t>(at)];
      if (linear.op != Op::kLinear || linear.attributes.Flag("acc") || linear.block != add.block) continue;
      linear.inputs.push_back(other);
      linear.attributes.Set("acc", int64_t{1});
      linear.outputs = add.outputs;
      maker[add.outputs[0]] = at;
      gone[i] = true;
      break;
    }
  }
  std::vector<Node> kept;
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) kept.push_back(std::move(fused.nodes()[i]));
  }
  fused.nodes() = std::move(kept);
  return fused;
}

Graph UpdateInPlace(const Graph& graph) {
  Graph result = graph;
  std::vector<int> last_use(graph.num_values(), -1);
  std::vector<bool> made(graph.num_values(), false), taken(graph.num_values(), false);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (ValueId id : graph.nodes()[i].inputs) last_use[id] = static_cast<int>(i);
    for (ValueId id : graph.nodes()[i].outputs) made[id] = true;
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).updates != kNoValue) taken[graph.value(id).updates] = true;
  }
  for (size_t i = 0; i < result.nodes().size(); ++i) {
    const Node& node = result.nodes()[i];
    const int position = RuleOf(node.op).in_place_input;
    if (position < 0 || position >= static_cast<int>(node.inputs.size())) continue;
    const ValueId in = node.inputs[static_cast<size_t>(position)], out = node.outputs[0];
    const bool twice = std::count(node.inputs.begin(), node.inputs.end(), in) > 1;
    Value& value = result.value(out);
    if (twice || taken[in] || !made[in] || IsPersistent(result.value(in).role) || IsPersistent(value.role) ||
        value.updates != kNoValue || last_use[in] != static_cast<int>(i) ||
        !(result.value(in).type == value.type)) {
      continue;
    }
    value.updates = in;
    taken[in] = true;
  }
  return result;
}

}  // namespace temper
