// OptimizerGroup: trained weights that have a learning rate or a weight decay of their own. A value type.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace temper {

struct OptimizerGroup {
  // Names of modules: a module's path equals one or ends with "." + name. Of several groups the first one counts.
  std::vector<std::string> modules;
  std::optional<double> learning_rate;  // its peak: it follows the run's schedule; absent: the run's
  std::optional<double> weight_decay;   // absent: the run's
  bool operator==(const OptimizerGroup&) const = default;
};

}  // namespace temper
