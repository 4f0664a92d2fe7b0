// From the command line to a resolved configuration: shared by `train` and `plan`.
#pragma once

#include <optional>

#include "cli/commands.h"
#include "cli/opened_model.h"
#include "train/command_line.h"
#include "train/option_set.h"
#include "train/run_config.h"

namespace temper {

struct TrainSetup {
  ResolvedRun run;
  OpenedModel model;
};

// Reads arguments over an optional YAML file into a configuration, opens its model and resolves what was left open.
// Nothing is returned where --help was asked for and printed. `more`: options that the command adds.
Result<std::optional<TrainSetup>> SetUpTraining(const Arguments& arguments, Purpose purpose, const char* usage,
                                                std::vector<OptionGroup> more = {});

}  // namespace temper
