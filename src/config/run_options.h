// The options of `temper train` and `temper plan`: the table that binds option names to a RunConfig, and its reading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/option_set.h"
#include "settings/run_config.h"

namespace temper {

// The table, bound to `config`, which must outlive it.
OptionSet RunOptions(RunConfig& config);
// Only its groups, for a command that adds its own options.
std::vector<OptionGroup> RunOptionGroups(RunConfig& config);

// chat_template and chat_template_kwargs, for commands that render conversations without a RunConfig.
Option ChatTemplateOption(std::string& chat_template);
Option ChatTemplateKwargs(JsonObject& kwargs);
Option RowTemplateOption(std::string& row_template);
Option ReasoningTurnsOption(ReasoningTurns& turns);

// `config` as YAML; `notes` as in ResolvedRun. ParseRunConfig reads it back to an equal configuration. Clear
// output.overwrite and output.resume before saving a configuration that users may run again.
std::string PrintRunConfig(const RunConfig& config, const std::map<std::string, std::string>& notes = {});
Result<RunConfig> ParseRunConfig(std::string_view yaml, const std::string& file);

// Equal in every option.
bool operator==(const RunConfig& a, const RunConfig& b);

// An option with different values in two configurations, as YAML.
struct OptionDifference {
  std::string name, a, b;
};

// The options of kind `on_resume` in which the configuration `a` of a checkpoint and that of the resumed run differ.
// kGoesOn: also those of kGoesOnWithAnotherProgram.
std::vector<OptionDifference> Differences(const RunConfig& a, const RunConfig& b, OnResume on_resume);

// The options of the task of `a`, and `reference`, in which the two differ.
std::vector<OptionDifference> DifferencesOfTask(const RunConfig& a, const RunConfig& b);

// The settings that must be the same on all ranks of a run: all except those that each may choose for its machine.
RunConfig SettingsOfAllRanks(const RunConfig& config);
// "learning_rate 0.1, not 0.2; max_steps 3, not 4": where `a` differs from `b`.
std::string DescribeDifferences(const RunConfig& a, const RunConfig& b);

}  // namespace temper
