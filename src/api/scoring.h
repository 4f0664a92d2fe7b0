// Scoring: what a model with a head of classes says of each row of a data file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/forward_pass.h"

namespace temper {

struct ScoringSettings : ForwardSettings {
  std::vector<OptionGroup> Groups() { return ForwardSettings::Groups("file to judge", /*answers=*/false); }
};

// Calls `write` with a line of JSON for each row, in their order, without its end:
//   {"line": 1, "label": "cat", "probability": 0.98, "probabilities": {"cat": 0.98, "dog": 0.02}}
//   {"line": 1, "reward": 0.5}
// `line`: of the row in its file; with several files "file" stands before it. `stop` is asked before each batch; true
// ends with kInterrupted.
Status RunScoring(ScoringSettings settings, const std::function<void(const std::string& line)>& write,
                  const std::function<bool()>& stop = nullptr);

}  // namespace temper
