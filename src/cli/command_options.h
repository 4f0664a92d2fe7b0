// What every command does with its options: reads them, answers --help, and asks for those it needs.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/commands.h"
#include "config/option_set.h"

namespace temper {

// Reads `arguments` into the options of `groups`. False: --help was asked for and printed.
Result<bool> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups, const char* usage);

// Error naming the option where a required text is empty.
Status RequireOption(const std::string& value, const char* option);

}  // namespace temper
