// The option that takes groups of weights with settings of their own:
//   optimizer_groups: [{modules: [lm_head, embed_tokens], learning_rate: 1e-5, weight_decay: 0}]
//   --optimizer_groups '{modules: lm_head, learning_rate: 1e-5}', once a group
#pragma once

#include <vector>

#include "config/option.h"
#include "settings/optimizer_group.h"

namespace temper {

Option GroupsOption(std::vector<OptimizerGroup>& groups);

}  // namespace temper
