// Options of every command: reads them, prints --help, and requires some of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/commands.h"
#include "config/command_line.h"
#include "config/foreign_names.h"
#include "config/option_set.h"

namespace temper {

// Reads `arguments` into the options of `groups`; a first word without dashes is the option "model" of a command that
// takes one, or the file of a run. nullopt: --help was given and printed.
Result<std::optional<CommandLine>> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups,
                                                      const Command& command);

// Command::read_options of a command whose settings are a Settings, with its groups of options in Groups().
template <class Settings>
void ReadOptionsOf(const OptionsReader& read) {
  Settings settings;
  read(OptionSet(settings.Groups(), ForeignNames()));
}

// An error naming the option if a required text is empty.
Status RequireOption(const std::string& value, const char* option);
// The same for the model, which may also be the first word.
Status RequireModel(const std::string& model, const Command& command);

}  // namespace temper
