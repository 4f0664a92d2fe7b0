// The options of all optimizers' settings.
#pragma once

#include <vector>

#include "config/option.h"
#include "settings/optimizer_settings.h"

namespace temper {

// In the order of UpdateRules(). They point into `settings`.
std::vector<Option> OptimizerOptions(OptimizerSettings& settings);

}  // namespace temper
