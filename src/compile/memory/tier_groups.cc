#include "compile/memory/tier_groups.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "compile/layout/addresses.h"
#include "compile/residency/expert_rows.h"
#include "graph/named_ops.h"
#include "graph/ops/move_part.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

// The key of a group: for states ("adam_m:W") ":" and the weight's name, else the value's own name, which has no colon
// in front.
std::string_view KeyOf(const Value& root) {
  const std::string_view name = root.name;
  return root.role == Role::kOptimizerState ? name.substr(name.find(':')) : name;
}

// Whether `home`, the operand that determines where an update runs, is a state. Without states it is the weight itself.
bool HasStates(const Graph& graph, ValueId home) {
  return graph.value(graph.Root(home)).role == Role::kOptimizerState;
}

// Bytes per element of the values that an update replaces, except the weight in compute precision.
Bytes ReplacedPerElement(const Graph& graph, const Node& update) {
  Bytes bytes{};
  for (size_t k = 0; k < UpdateOperands(update).replacing(); ++k) {
    bytes += Bytes{SizeOf(graph.value(update.outputs[k]).type.dtype)};
  }
  return bytes;
}

class GroupFinder {
 public:
  GroupFinder(const MemorySpec& memory, const StepUses& uses) : memory_(memory), uses_(uses) {}

  std::vector<TierGroup> Run() {
    for (const GraphUse& use : uses_.graphs) {
      AddValues(*use.of.graph);
      group_of_.push_back(GroupsOf(*use.of.graph));
      CountMoves(*use.of.graph, group_of_.back(), use.times);
    }
    if (uses_.gradients_last) {
      for (size_t use = 0; use < uses_.graphs.size(); ++use) FindLasting(use);
    }
    return std::move(groups_);
  }

 private:
  void AddValues(const Graph& graph) {
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      const Value& value = graph.value(id);
      const bool lives = value.role == Role::kWeight || value.role == Role::kAdapter || value.role == Role::kGradient ||
                         value.role == Role::kOptimizerState;
      if (graph.Root(id) != id || !lives) continue;
      const auto [it, fresh] = index_.try_emplace(KeyOf(value), groups_.size());
      if (fresh) groups_.push_back({.fixed = FixedTierOf(memory_, value.role)});
      TierGroup& group = groups_[it->second];
      if (value.role != Role::kWeight || value.trainable) group.frozen = false;
      if (!counted_.insert(value.name).second) continue;
      group.names.push_back(value.name);
      group.bytes += AlignUp(value.type.bytes(), kAlignment);
    }
  }

  static constexpr size_t kNoGroup = SIZE_MAX;
  using GroupOfValue = std::vector<size_t>;

  // Per value; kNoGroup for one without a home.
  GroupOfValue GroupsOf(const Graph& graph) const {
    GroupOfValue groups(static_cast<size_t>(graph.num_values()), kNoGroup);
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (graph.Root(id) != id) continue;
      const auto it = index_.find(KeyOf(graph.value(id)));
      if (it != index_.end()) groups[static_cast<size_t>(id)] = it->second;
    }
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      groups[static_cast<size_t>(id)] = groups[static_cast<size_t>(graph.Root(id))];
    }
    return groups;
  }

  // nullptr for a value without a home.
  TierGroup* GroupOf(const GroupOfValue& groups, ValueId id) {
    const size_t group = groups[static_cast<size_t>(id)];
    return group == kNoGroup ? nullptr : &groups_[group];
  }

  void CountMoves(const Graph& graph, const GroupOfValue& group_of, int times) {
    for (const Node& node : graph.nodes()) {
      const UpdateRule* const rule = UpdateRuleOf(node.op);
      const bool updates = rule != nullptr;
      std::optional<Bytes> of_element;
      if (updates) {
        const UpdateOperands operands(node);
        const ValueId home = node.inputs[operands.home()];
        // If the states are not on the device, the gradient moves to them and the weight comes back. Without states,
        // the weight itself is there; without states and masters (stochastic rounding) nothing moves: nullptr.
        TierGroup* const at_home = GroupOf(group_of, home);
        const ValueId master = node.inputs[UpdateOperands::kMaster];
        // An average stays where it is, with the master; a weight that is its own master moves to it.
        const TierGroup* const of_gradient = GroupOf(group_of, node.inputs[UpdateOperands::kGradient]);
        if (at_home != nullptr && (!rule->averages || of_gradient != at_home)) {
          at_home->moved += graph.value(node.inputs[UpdateOperands::kGradient]).type.bytes();
        }
        if (at_home != nullptr && HasStates(graph, home) && !rule->averages) {
          const bool widened = GroupOf(group_of, master) == nullptr;  // it goes there and comes back
          at_home->moved +=
              widened ? graph.value(master).type.bytes() * 2 : graph.value(node.outputs.back()).type.bytes();
        }
        if (rule->elementwise()) of_element = ReplacedPerElement(graph, node);
      }
      for (const auto* list : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *list) {
          TierGroup* const group = GroupOf(group_of, id);
          if (group == nullptr) continue;
          group->updated |= updates || node.op == Op::kSumSquares;
          group->whole |= updates && !of_element;
          if (group->whole) group->of_element.reset();
          if (of_element && !group->whole) {
            group->of_element = std::max(group->of_element.value_or(Bytes{}), *of_element);
          }
          if (updates) continue;
          const TensorType& type = graph.value(graph.Root(id)).type;
          const ValueId rows = RowsOfExperts(graph, node, id);
          group->moved +=
              (rows == kNoValue ? type.bytes() : MostRouted(type, graph.value(rows).type.shape.elements())) * times;
        }
      }
    }
  }

  void FindLasting(size_t use) {
    const Graph& graph = *uses_.graphs[use].of.graph;
    const GroupOfValue& group_of = group_of_[use];
    std::vector<size_t> ends;  // for a value that no graph touches
    for (const GraphUse& any : uses_.graphs) ends.push_back(any.of.graph->nodes().size());
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      for (const auto* list : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *list) {
          if (graph.value(graph.Root(id)).role != Role::kGradient) continue;
          std::vector<size_t>& from = GroupOf(group_of, id)->from;
          if (from.empty()) from = ends;
          if (from[use] == ends[use]) from[use] = list == &node.inputs ? 0 : i;
        }
      }
      const UpdateRule* const rule = UpdateRuleOf(node.op);
      if (rule == nullptr || rule->averages) continue;
      const ValueId home = node.inputs[UpdateOperands(node).home()];
      // A weight without states is on the device for its other uses.
      if (!HasStates(graph, home)) continue;
      TierGroup& states = *GroupOf(group_of, home);
      TierGroup* const gradient = GroupOf(group_of, node.inputs[UpdateOperands::kGradient]);
      // No group if the update itself makes its input.
      if (gradient == nullptr || states.fixed || gradient->fixed) continue;
      states.gradient = static_cast<size_t>(gradient - groups_.data());
      gradient->follows = true;
    }
  }

  const MemorySpec& memory_;
  const StepUses& uses_;
  std::vector<TierGroup> groups_;
  // Their texts lie in the graphs.
  std::unordered_map<std::string_view, size_t> index_;  // by key
  std::vector<GroupOfValue> group_of_;                  // per graph
  std::unordered_set<std::string_view> counted_;        // names of values
};

}  // namespace

std::optional<Tier> FixedTierOf(const MemorySpec& memory, Role role) {
  const auto fixed = role == Role::kOptimizerState ? memory.optimizer
                     : role == Role::kGradient     ? memory.gradients
                     : role == Role::kWeight       ? memory.weights
                                                   : std::nullopt;
  if (fixed || memory.policy != TierPolicy::kHost) return fixed;
  return Tier::kHost;
}

std::vector<TierGroup> FindTierGroups(const MemorySpec& memory, const StepUses& uses) {
  return GroupFinder(memory, uses).Run();
}

Bytes AlwaysHeld(const std::vector<TierGroup>& groups) {
  Bytes sum{};
  for (const TierGroup& g : groups) {
    if (!g.frozen && !g.lasts()) sum += g.bytes;
  }
  return sum;
}

std::vector<size_t> ByDensity(const std::vector<TierGroup>& groups) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return groups[a].density() > groups[b].density(); });
  return order;
}

}  // namespace temper
