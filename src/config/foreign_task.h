// Foreign task: recipes of other tools for preferences and reward models, of those methods that Temper trains: which
// task a file is for, and what the settings of such a recipe become. What settings mean elsewhere, too, is in the table
// of foreign names. Read from the sources of LLaMA-Factory 0.9.5, Axolotl 0.19 and TRL 1.16.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/foreign_file.h"
#include "config/foreign_objective.h"
#include "config/foreign_tools.h"
#include "objective/objective.h"

namespace temper {

struct ForeignTask {
  const ObjectiveRule* rule = nullptr;         // null: the file is for fine-tuning, or for nothing that is trained here
  std::string from;                            // the setting that says so, or the word of a command
  std::optional<OtherObjective> refused = {};  // a method of these, but a loss that is not trained here
};

// `asked`: the task that the user says the file is for, or null.
ForeignTask TaskOf(const ForeignFile& file, ForeignTool tool, const ObjectiveRule* asked);

// What a setting becomes. Without `sets` at least one sentence says why, or nothing is lost.
struct TaskSetting {
  std::vector<std::pair<std::string, OrderedJson>> sets;  // options
  std::string changed, lost, needless;
};
// nullopt: it has the meaning that it has in other runs. REQUIRES: the task has a rule.
std::optional<TaskSetting> TaskSettingOf(const ForeignTask& task, ForeignTool tool, const ForeignFile& file,
                                         const ForeignSetting& setting);

// The tool's defaults of such a recipe where they are not ours, or not those of its other recipes.
std::vector<ToolDefault> TaskDefaults(const ForeignTask& task, ForeignTool tool, const ForeignFile& file);

// What is computed in another way, whatever the file says: a sentence each.
std::vector<std::string> TaskChanges(const ForeignTask& task, ForeignTool tool, const ForeignFile& file);

}  // namespace temper
