// The options that say what is learned: the task, and the settings of each, in sections of their names.
#pragma once

#include <string>
#include <vector>

#include "config/option_set.h"
#include "objective/objective.h"
#include "settings/run_config.h"

namespace temper {

// `task`. With null as the rule's value the option is "auto": the command decides.
Option TaskOption(const ObjectiveRule*& rule);
// `reference`, for the tasks that compare with another model. `use` ends its help.
Option ReferenceOption(std::string& reference, const char* use);
// `teacher` and `teacher_base_dtype`, for the tasks that learn from a model.
Option TeacherOption(std::string& teacher);
Option TeacherTypeOption(BaseType& type);
// "dpo.beta" and the like, then those of rewards: two groups.
std::vector<OptionGroup> TaskOptionGroups(TaskSettings& tasks);

}  // namespace temper
