// Gives trained values the learning rates and decays of their groups: those of lora_plus_ratio and optimizer_groups;
// and another optimizer where the run's does not take them (UpdateRule::takes).
#pragma once

#include <string>
#include <vector>

#include "compile/step/update.h"
#include "graph/graph.h"
#include "model/trainable_set.h"
#include "settings/run_config.h"

namespace temper {

// Sets Value::update_group of the trained values of `forward`, and `spec`'s groups. Nothing changes for a run without
// groups. REQUIRES: `optimizer` is resolved; `forward` is not yet split over ranks.
void AssignUpdateGroups(const RunConfig::Optimizer& optimizer, Graph* forward, UpdateSpec* spec);

// A line for each name of a group that decides nothing, most often a mistyped one.
std::vector<std::string> IdleGroups(const RunConfig::Optimizer& optimizer, const TrainableSet& trains,
                                    const Model& model);

}  // namespace temper
