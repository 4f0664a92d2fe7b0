// Import: a configuration of LLaMA-Factory, Axolotl or TRL as one of ours. Names and values are translated by the table
// of foreign names (config/foreign_names.h). Where the file leaves a setting open and the other tool's default is not
// ours, the other tool's is written, so that the run stays the same.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "config/option_set.h"
#include "objective/objective.h"

namespace temper {

struct ImportOptions {
  ForeignTool tool = ForeignTool::kAny;  // recognised from the names
  // Sft(): a recipe for anything else becomes fine-tuning on given answers; what it asked for is named. Another task:
  // the one that TRL's trainer of the file has, where its names do not show it. Null: as the file says, and a recipe
  // for what is not trained here (config/foreign_objective.h) is an error.
  const ObjectiveRule* as = nullptr;
  std::span<const std::string_view> templates = {};  // names of the chat templates that Temper has
};

struct ImportedRun {
  ForeignTool tool = ForeignTool::kAny;
  std::string yaml;  // a run.yaml, with comments: what each line comes from, and the lists below
  size_t settings = 0;
  // A sentence each, with its line in the file.
  std::vector<std::string> changed;   // translated, but the meaning changes
  std::vector<std::string> lost;      // no equivalent, and why
  std::vector<std::string> needless;  // needs no setting here
};

// `text` is the content of `file`. Errors: what is no configuration; settings that contradict each other; another
// objective.
Result<ImportedRun> ImportRun(Env& env, std::string_view text, const std::string& file, const ImportOptions& options);

}  // namespace temper
