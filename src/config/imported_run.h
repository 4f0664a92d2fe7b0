// ImportedRun: what temper import makes of a recipe of another tool: a run.yaml, and what is said beside it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "config/option_set.h"

namespace temper {

struct ImportedRun {
  ForeignTool tool = ForeignTool::kAny;
  std::string yaml;  // a run.yaml, with comments: what each line comes from, and the lists below
  size_t settings = 0;
  // A sentence each, with its line in the file.
  std::vector<std::string> changed;   // translated, but the meaning changes
  std::vector<std::string> lost;      // no equivalent, and why
  std::vector<std::string> needless;  // needs no setting here
};

// Writes `yaml` and counts `settings`: the options that have a note, which is the name that set each, or empty. `file`
// is the recipe's path.
void WriteRun(const std::string& file, const OptionSet& options, const std::map<std::string, std::string>& notes,
              ImportedRun& run);

}  // namespace temper
