#include "cli/command_options.h"

#include <fmt/core.h>

#include <cstdio>

#include "config/command_line.h"
#include "config/foreign_names.h"

namespace temper {

Result<bool> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups, const char* usage) {
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_ASSIGN_OR_RETURN(const CommandLine line, ReadCommandLine(arguments, options));
  if (line.help) {
    std::fputs(HelpText(usage, options).c_str(), stdout);
    return false;
  }
  if (!line.positional.empty()) {
    return InvalidArgument(
        fmt::format("'{}' is not an option: this command takes only --option value", line.positional[0]));
  }
  TEMPER_RETURN_IF_ERROR(ApplyCommandLine(line, options));
  TEMPER_RETURN_IF_ERROR(options.CheckRanges());
  return true;
}

Status RequireOption(const std::string& value, const char* option) {
  return value.empty() ? InvalidArgument(fmt::format("--{} is required; see --help", option)) : OkStatus();
}

}  // namespace temper
