// The command line of a command that takes a run's settings: `train` and `plan`.
#pragma once

#include <optional>
#include <vector>

#include "api/train_setup.h"
#include "cli/commands.h"
#include "config/option_set.h"
#include "config/validate.h"

namespace temper {

// Reads arguments over an optional YAML file, and checks them. nullopt: --help was given, and printed if `prints_help`.
// `more`: options that the command adds.
Result<std::optional<RunRequest>> ReadRunLine(const Arguments& arguments, Purpose purpose, const char* usage,
                                              bool prints_help, std::vector<OptionGroup> more = {});

}  // namespace temper
