// Settings (temper.h) as the options of a call.
#pragma once

#include "api/temper.h"
#include "api/train_setup.h"
#include "config/option_set.h"
#include "config/validate.h"

namespace temper {

// Sets the options that `settings` names. Errors begin with "settings", or the YAML's file and line.
Status ApplySettings(const Settings& settings, const OptionSet& options);
// The same for the options of `groups`, whose numbers it checks as well.
Status ReadSettings(const Settings& settings, std::vector<OptionGroup> groups);

// A run as `settings` have it; `more` as for ReadSettings. Errors: also more ranks than one, which are processes.
Result<RunRequest> RunOfSettings(const Settings& settings, Purpose purpose, std::vector<OptionGroup> more = {});

}  // namespace temper
