// Foreign objective: whether a file of another tool asks for something else than fine-tuning on given answers by LoRA
// or in full, or one of the recipes of config/foreign_task.h. As such a run it would train on other rows, toward
// something else, and look as if all were well.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/foreign_file.h"
#include "config/option_set.h"

namespace temper {

struct OtherObjective {
  std::string setting;  // that says so; empty: the command of a script does
  std::string why;      // "line 4, stage: dpo: DPO trains on preferences"
};

// `has_task`: it is a recipe for preferences or rewards that is translated (config/foreign_task.h), which no longer
// counts.
std::vector<OtherObjective> OtherObjectives(const ForeignFile& file, ForeignTool tool, bool has_task = false);

// Settings that TRL's trainers for preferences, rewards, reinforcement learning and distillation have and SFT has not;
// separated by spaces.
std::string_view SettingsOfTrlsOtherTrainers();

// Whether `words`, separated by spaces, has that word.
bool IsListed(std::string_view words, std::string_view word);

}  // namespace temper
