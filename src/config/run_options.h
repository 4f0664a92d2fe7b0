// The options of `temper train` and `temper plan`: the table that binds users' names to a RunConfig, and its reading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/option_set.h"
#include "config/run_config.h"

namespace temper {

// The table, bound to `config`, which must outlive it.
OptionSet RunOptions(RunConfig& config);
// Its groups alone, for a command that adds options of its own.
std::vector<OptionGroup> RunOptionGroups(RunConfig& config);

// chat_template_kwargs, for commands that render conversations without a RunConfig.
Option ChatTemplateKwargs(JsonObject& kwargs);

// `config` as YAML; `notes` as in ResolvedRun. ParseRunConfig reads it back to an equal configuration. What is saved
// for people to run again should have output.overwrite and output.resume cleared first.
std::string PrintRunConfig(const RunConfig& config, const std::map<std::string, std::string>& notes = {});
Result<RunConfig> ParseRunConfig(std::string_view yaml, const std::string& file);

// Equal in every option.
bool operator==(const RunConfig& a, const RunConfig& b);

// An option that two configurations have different values for, as YAML.
struct OptionDifference {
  std::string name, a, b;
};

// Between the configuration of a checkpoint and the one it is to go on with, leaving out options that say where and how
// to run, not what to compute.
std::vector<OptionDifference> ResultChangingDifferences(const RunConfig& a, const RunConfig& b);

// What must be the same on all ranks of a run: all but what each may choose for the machine it is on.
RunConfig SettingsOfAllRanks(const RunConfig& config);
// "learning_rate 0.1, not 0.2; max_steps 3, not 4": where `a` is not as `b`.
std::string DescribeDifferences(const RunConfig& a, const RunConfig& b);

}  // namespace temper
