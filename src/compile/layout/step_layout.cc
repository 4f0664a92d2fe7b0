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

// The part of `all`, the layout of a timeline, that belongs to `graph`, whose nodes start at `begin` there. `ids`: its
// values there.
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

// Per value of the update: the gradient of the micro-batch that it is, or kNoValue.
std::vector<ValueId> TakenGradients(const Graph& micro_batch, const Graph& update) {
  const auto made = MadeGradients(micro_batch);
  std::vector<ValueId> taken(static_cast<size_t>(update.num_values()), kNoValue);
  for (ValueId id = 0; id < update.num_values(); ++id) {
    const Value& value = update.value(id);
    if (value.role != Role::kGradient || update.Root(id) != id) continue;
    const auto it = made.find(value.name);
    if (it != made.end()) taken[static_cast<size_t>(id)] = it->second;
  }
  return taken;
}

}  // namespace

std::vector<ValueId> GradientsOfStep(const Graph& micro_batch, const Graph& update) {
  std::vector<ValueId> gradients = TakenGradients(micro_batch, update);
  std::erase(gradients, kNoValue);
  return gradients;
}

StepLayout LayOutStep(const Graph& micro_batch, const Graph& update, int threads, const PackingGoals& goals) {
  StepLayout result;
  Timeline timeline(threads);
  const std::vector<ValueId> ids = timeline.Append(micro_batch);
  const std::vector<ValueId> taken = TakenGradients(micro_batch, update);
  for (const ValueId id : taken) {
    if (id == kNoValue) continue;
    result.gradients.push_back(id);
    timeline.value(id).role = Role::kActivation;
  }
  const std::vector<ValueId> ids_of_update = timeline.Append(update, taken);
  const Layout all = LayOut(timeline, {}, result.gradients, goals);
  result.micro_batch = LayoutFrom(all, micro_batch, 0, ids);
  result.update = LayoutFrom(all, update, micro_batch.nodes().size(), ids_of_update);
  return result;
}

}  // namespace temper
