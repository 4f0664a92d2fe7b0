#include "compile/run/update_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "format/quoted.h"
#include "format/trained_copy.h"
#include "graph/named_ops.h"

namespace temper {
namespace {

// The path of the module that a trained value is of: of "base_model.model.lm_head.weight", of
// "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight", of "model.layers.0.self_attn.qkv_proj.weight/q".
std::string ModuleOf(std::string name) {
  name.erase(std::min(name.rfind('/'), name.size()));
  if (name.starts_with(kAdapterPrefix)) name.erase(0, kAdapterPrefix.size());
  name.erase(std::min(name.rfind('.'), name.size()));
  for (const std::string_view matrix : {".lora_A", ".lora_B", ".token_adapter"}) {
    if (name.ends_with(matrix)) name.erase(name.size() - matrix.size());
  }
  return name;
}

// A parameter with an adapter ("...mlp.gate.weight", "...experts.down_proj") also answers to its module's name.
bool IsCalled(const std::string& path, const std::string& name) {
  const auto ends = [&](const std::string& whole) { return whole == name || whole.ends_with("." + name); };
  const std::string owner = path.substr(0, std::min(path.rfind('.'), path.size()));
  const bool of_parameter = path.ends_with(".weight") || owner.ends_with(".experts");
  return ends(path) || (of_parameter && ends(owner));
}

// The first group that a module is of, and the name that says so; nullptr: none.
struct Membership {
  const OptimizerGroup* group = nullptr;
  const std::string* name = nullptr;
};
Membership GroupOf(const std::vector<OptimizerGroup>& groups, const std::string& module) {
  for (const OptimizerGroup& group : groups) {
    for (const std::string& name : group.modules) {
      if (IsCalled(module, name)) return {&group, &name};
    }
  }
  return {};
}

// As PEFT's create_loraplus_optimizer has it.
bool HasRateOfB(const Value& value) {
  return value.type.shape.rank() == 1 || value.name.find(".lora_B.") != std::string::npos;
}

// Of each value of a forward graph that has not been split over ranks.
std::vector<UpdatedValue> UpdatedValuesOf(const Graph& forward) {
  const std::vector<int> blocks = BlocksOfFirstUse(forward);
  std::vector<UpdatedValue> values;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    values.push_back({.shape = forward.value(id).type.shape, .in_block = blocks[static_cast<size_t>(id)] >= 0});
  }
  for (const Node& node : forward.nodes()) {
    if (node.op == Op::kEmbedding) values[static_cast<size_t>(node.inputs[0])].is_table = true;
  }
  return values;
}

}  // namespace

void AssignUpdateGroups(const RunConfig::Optimizer& optimizer, Graph* forward, UpdateSpec* spec) {
  const UpdateGroup all = {.weight_decay = spec->weight_decay};
  const auto takes = spec->rule->takes;
  const std::vector<UpdatedValue> facts = takes == nullptr ? std::vector<UpdatedValue>() : UpdatedValuesOf(*forward);
  for (ValueId id = 0; id < forward->num_values(); ++id) {
    Value& value = forward->value(id);
    if (!value.trainable) continue;
    UpdateGroup own = all;
    if (const OptimizerGroup* const group = GroupOf(optimizer.groups, ModuleOf(value.name)).group) {
      if (group->learning_rate) own.lr_factor = *group->learning_rate / *optimizer.learning_rate;
      own.weight_decay = group->weight_decay.value_or(own.weight_decay);
    }
    if (optimizer.lora_plus_ratio && HasRateOfB(value)) own.lr_factor *= *optimizer.lora_plus_ratio;
    own.of_the_others = takes != nullptr && !takes(facts[static_cast<size_t>(id)]);
    if (own == all) continue;
    const auto at = std::find(spec->groups.begin(), spec->groups.end(), own) - spec->groups.begin();
    if (at == std::ssize(spec->groups)) spec->groups.push_back(own);
    value.update_group = static_cast<int>(at) + 1;
  }
}

std::vector<std::string> IdleGroups(const RunConfig::Optimizer& optimizer, const TrainableSet& trains,
                                    const Model& model) {
  std::set<const std::string*> decides;
  for (const StoredWeight& w : trains.Stored(model)) decides.insert(GroupOf(optimizer.groups, ModuleOf(w.name)).name);
  std::vector<std::string> idle;
  for (const OptimizerGroup& group : optimizer.groups) {
    for (const std::string& name : group.modules) {
      if (decides.contains(&name)) continue;
      idle.push_back(
          fmt::format("optimizer_groups: {} has no effect: no module that is trained is called so, except "
                      "those of earlier groups",
                      Quoted(name)));
    }
  }
  return idle;
}

}  // namespace temper
