#include "compile/layout/step_layout.h"

#include <string_view>
#include <unordered_map>

namespace temper {
namespace {

// The gradients that `graph` makes, by name: the values that own their addresses.
std::unordered_map<std::string_view, ValueId> MadeGradients(const Graph& graph) {
  std::unordered_map<std::string_view, ValueId> made;
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) {
      const Value& value = graph.value(id);
      const bool first = graph.Root(id) == id && value.role == Role::kGradient && value.tier != Tier::kDisk;
      if (first) made.emplace(value.name, id);
    }
  }
  return made;
}

// The part of `all`, the layout of a joined graph, that belongs to
// `graph`, whose nodes start at `begin` there. `ids`: its values there.
Layout LayoutFrom(const Layout& all, const Graph& graph, size_t begin, const std::vector<ValueId>& ids) {
  Layout part{.tiers = all.tiers};
  part.home.reserve(ids.size());
  for (const ValueId id : ids) part.home.push_back(all.home[static_cast<size_t>(id)]);
  const size_t end = begin + graph.nodes().size();
  part.scratch.assign(all.scratch.begin() + static_cast<std::ptrdiff_t>(begin),
                      all.scratch.begin() + static_cast<std::ptrdiff_t>(end));
  for (TierLayout& tier : part.tiers) {
    // Only one of the two graphs contains the peak of both.
    if (tier.peak_node >= begin && tier.peak_node < end) {
      tier.peak_node -= begin;
    } else {
      tier = {.span = tier.span, .slots = tier.slots};
    }
  }
  return part;
}

}  // namespace

StepLayout LayOutStep(const Graph& micro_batch, const Graph& update, int threads) {
  StepLayout result;
  Graph joined;
  std::vector<ValueId> ids, ids_of_update;
  // Without names, which layouts do not need.
  const auto nameless = [](const Value& v) -> Value {
    return {.type = v.type, .role = v.role, .tier = v.tier, .updates = v.updates};
  };
  for (ValueId id = 0; id < micro_batch.num_values(); ++id) {
    ids.push_back(joined.AddValue(nameless(micro_batch.value(id))));
  }
  const auto made = MadeGradients(micro_batch);
  for (ValueId id = 0; id < update.num_values(); ++id) {
    const Value& value = update.value(id);
    const auto it = made.find(value.name);
    const bool taken = value.role == Role::kGradient && update.Root(id) == id && it != made.end();
    ids_of_update.push_back(taken ? it->second : joined.AddValue(nameless(value)));
    if (!taken) continue;
    result.gradients.push_back(it->second);
    joined.value(it->second).role = Role::kActivation;
  }
  const auto joined_id = [&](ValueId id) { return ids_of_update[static_cast<size_t>(id)]; };
  for (ValueId id = 0; id < update.num_values(); ++id) {
    const ValueId updated = update.value(id).updates;
    if (updated != kNoValue) joined.value(joined_id(id)).updates = joined_id(updated);
  }
  joined.nodes().reserve(micro_batch.nodes().size() + update.nodes().size());
  for (const Node& node : micro_batch.nodes()) joined.AddNode(node);
  for (Node node : update.nodes()) {
    for (auto* list : {&node.inputs, &node.outputs}) {
      for (ValueId& id : *list) id = joined_id(id);
    }
    joined.AddNode(std::move(node));
  }
  const Layout all = LayOut(joined, {}, threads, result.gradients);
  result.micro_batch = LayoutFrom(all, micro_batch, 0, ids);
  result.update = LayoutFrom(all, update, micro_batch.nodes().size(), ids_of_update);
  return result;
}

}  // namespace temper
