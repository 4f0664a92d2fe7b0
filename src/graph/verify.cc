#include <fmt/core.h>

#include <algorithm>

#include "graph/graph.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Where each value is made and last used, by node index; -1 for sources and for values never used.
struct Liveness {
  std::vector<int> made, last_use;
};

std::string Describe(const Graph& graph, size_t index) {
  const Node& node = graph.nodes()[index];
  std::string text = fmt::format("node {} {}{}", index, ToString(node.op), node.attributes.ToString());
  for (ValueId id : node.inputs) {
    if (id >= 0 && id < graph.num_values()) {
      text += fmt::format(" <- %{} {} {}", id, graph.value(id).name, graph.value(id).type.ToString());
    }
  }
  return text;
}

Status Bad(const Graph& graph, size_t index, const std::string& what) {
  return Corrupt(fmt::format("{}: {}", Describe(graph, index), what));
}

// Names stand in quotes in the text form.
Status CheckNames(const Graph& graph) {
  const auto printable = [](const std::string& name) {
    return name.find('"') == name.npos && name.find('\n') == name.npos;
  };
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (!printable(graph.value(id).name))
      return Corrupt(fmt::format("value %{} has a quote or a line break in its name", id));
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!printable(graph.nodes()[i].rng_name)) return Bad(graph, i, "has a quote or a line break in its rng name");
  }
  return OkStatus();
}

Status CheckIds(const Graph& graph) {
  const auto known = [&](ValueId id) { return id >= 0 && id < graph.num_values(); };
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (ValueId id : graph.nodes()[i].inputs) {
      if (!known(id)) return Bad(graph, i, fmt::format("input %{} does not exist", id));
    }
    for (ValueId id : graph.nodes()[i].outputs) {
      if (!known(id)) return Bad(graph, i, fmt::format("output %{} does not exist", id));
    }
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const ValueId target = graph.value(id).updates;
    // Ids say nothing of order: a recomputed value has a late id and an early place. CheckUpdates goes by the nodes.
    if (target != kNoValue && !known(target)) {
      return Corrupt(fmt::format("value %{} {} updates %{}, which does not exist", id, graph.value(id).name, target));
    }
  }
  return OkStatus();
}

Result<Liveness> CheckOrder(const Graph& graph) {
  Liveness live{std::vector<int>(graph.num_values(), -1), std::vector<int>(graph.num_values(), -1)};
  std::vector<bool> is_output(graph.num_values(), false);
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.outputs) is_output[id] = true;
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    for (ValueId id : node.inputs) {
      if (is_output[id] && live.made[id] < 0) return Bad(graph, i, fmt::format("uses %{} before it is made", id));
      const Role role = graph.value(id).role;
      if (!is_output[id] && (role == Role::kActivation || role == Role::kOutput)) {
        return Bad(graph, i, fmt::format("uses %{}, an {} that no node makes", id, ToString(role)));
      }
      live.last_use[id] = static_cast<int>(i);
    }
    for (ValueId id : node.outputs) {
      if (live.made[id] >= 0) return Bad(graph, i, fmt::format("writes %{} a second time", id));
      live.made[id] = static_cast<int>(i);
    }
  }
  return live;
}

Status CheckTypes(const Graph& graph) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    Result<Types> types = InferTypes(node.op, TypesOf(graph, node.inputs), node.attributes);
    if (!types.ok()) return Bad(graph, i, types.status().message());
    if (types->size() != node.outputs.size()) {
      return Bad(graph, i, fmt::format("has {} outputs, its rule gives {}", node.outputs.size(), types->size()));
    }
    for (size_t k = 0; k < types->size(); ++k) {
      const TensorType& stated = graph.value(node.outputs[k]).type;
      if (!(stated == (*types)[k])) {
        return Bad(graph, i,
                   fmt::format("output {} is {} but its rule gives {}", k, stated.ToString(), (*types)[k].ToString()));
      }
    }
  }
  return OkStatus();
}

// Kernels run where all their operands lie; moves go from one tier to another.
Status CheckTiers(const Graph& graph) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto tier = [&](ValueId id) { return graph.value(id).tier; };
    if (IsMove(node.op)) {
      const Tier from = tier(node.inputs[0]), to = tier(node.outputs[0]);
      if (node.op == TrafficOp::kFetch ? to < from : from < to) continue;
      return Bad(graph, i, fmt::format("goes from {} to {}", ToString(from), ToString(to)));
    }
    std::optional<Tier> all;
    for (const auto* list : {&node.inputs, &node.outputs}) {
      for (ValueId id : *list) {
        if (tier(id) == Tier::kDisk) return Bad(graph, i, fmt::format("touches %{}, which lies on the disk", id));
        if (all.value_or(tier(id)) != tier(id)) {
          return Bad(graph, i, fmt::format("touches %{}, in another tier than its other operands", id));
        }
        all = tier(id);
      }
    }
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.updates != kNoValue && graph.value(value.updates).tier != value.tier) {
      return Corrupt(fmt::format("%{} {} updates a value of another tier", id, value.name));
    }
  }
  return OkStatus();
}

Status CheckUpdates(const Graph& graph, const Liveness& live) {
  std::vector<ValueId> updated_by(graph.num_values(), kNoValue);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const ValueId target = graph.value(id).updates;
    if (target == kNoValue) continue;
    const int at = live.made[id];
    if (at < 0)
      return Corrupt(fmt::format("%{} {} updates %{} but no node makes it", id, graph.value(id).name, target));
    const auto node = static_cast<size_t>(at);
    if (!(graph.value(target).type == graph.value(id).type)) {
      return Bad(graph, node, fmt::format("%{} updates %{} of another type", id, target));
    }
    if (live.last_use[target] > at) {
      return Bad(graph, node,
                 fmt::format("%{} overwrites %{} {}, which node {} still reads", id, target, graph.value(target).name,
                             live.last_use[target]));
    }
    if (updated_by[target] != kNoValue) {
      return Bad(graph, node, fmt::format("%{} and %{} both update %{}", updated_by[target], id, target));
    }
    if (live.made[target] >= at)
      return Bad(graph, node, fmt::format("%{} updates %{}, made by the same node or later", id, target));
    const Node& maker = graph.nodes()[node];
    const auto output = std::find(maker.outputs.begin(), maker.outputs.end(), id) - maker.outputs.begin();
    const int free =
        OverwritableInput(maker.op, maker.attributes, static_cast<int>(maker.inputs.size()), static_cast<int>(output));
    for (size_t k = 0; k < maker.inputs.size(); ++k) {
      if (maker.inputs[k] == target && static_cast<int>(k) != free) {
        return Bad(graph, node, fmt::format("%{} overwrites %{}, which the op still reads as input {}", id, target, k));
      }
    }
    updated_by[target] = id;
  }
  return OkStatus();
}

Status CheckRoots(const Graph& graph, const Liveness& live) {
  for (const auto& [loss, seed] : graph.roots()) {
    const auto known = [&](ValueId id) { return id >= 0 && id < graph.num_values(); };
    if (!known(loss) || (seed != kNoValue && !known(seed))) {
      return Corrupt(fmt::format("root %{} or its seed does not exist", loss));
    }
    const std::string& name = graph.value(loss).name;
    if (live.made[loss] < 0) return Corrupt(fmt::format("root %{} {} is made by no node", loss, name));
    const auto maker = static_cast<size_t>(live.made[loss]);
    const Node& node = graph.nodes()[maker];
    const bool only_root = RuleOf(node.op).only_root && node.outputs[0] == loss;
    if (only_root && seed == kNoValue) continue;
    if (only_root) return Bad(graph, maker, "makes its own gradients, and its root has a seed");
    if (seed == kNoValue) return Bad(graph, maker, fmt::format("root %{} {} needs a seed", loss, name));
    if (live.made[seed] >= 0 || !(graph.value(seed).type == graph.value(loss).type)) {
      return Bad(graph, maker, fmt::format("the seed of root %{} {} is no source of its type", loss, name));
    }
  }
  return OkStatus();
}

}  // namespace

Status Verify(const Graph& graph) {
  TEMPER_RETURN_IF_ERROR(CheckNames(graph));
  TEMPER_RETURN_IF_ERROR(CheckIds(graph));
  TEMPER_ASSIGN_OR_RETURN(const Liveness live, CheckOrder(graph));
  TEMPER_RETURN_IF_ERROR(CheckTypes(graph));
  TEMPER_RETURN_IF_ERROR(CheckTiers(graph));
  TEMPER_RETURN_IF_ERROR(CheckRoots(graph, live));
  return CheckUpdates(graph, live);
}

}  // namespace temper
