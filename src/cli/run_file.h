// A run's file in place of a model: `temper data preview run.yaml`, `temper eval run.yaml`.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/commands.h"
#include "config/option_set.h"

namespace temper {

// Whether a word is the file of a run, not a model: a YAML file that exists.
bool IsRunFile(const std::string& word);

// Sets `options` as the file says: the model, and unless `command` takes the model alone the data, and all options that
// a run has, too. Errors: those of the file; the run has not trained the model that is asked for.
Status TakeRunFile(const std::string& path, const Command& command, const OptionSet& options);

}  // namespace temper
