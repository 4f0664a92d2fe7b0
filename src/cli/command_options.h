// Options of every command: reads them, prints --help, and requires some of them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/commands.h"
#include "config/option_set.h"

namespace temper {

// Reads `arguments` into the options of `groups`. False: --help was given and printed.
Result<bool> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups, const char* usage);

// An error naming the option if a required text is empty.
Status RequireOption(const std::string& value, const char* option);

}  // namespace temper
