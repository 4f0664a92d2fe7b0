// The command line of one command, read by its OptionSet:
//   --key value   --key=value   --lora.r 16   --flag   --no-flag   --resume[=CKPT]   --lora '{r: 8}'
// '-' and '_' are the same in names. Any other argument is
// positional. An option given twice must have the same value, unless it is repeatable (--data A --data B).
//
// Reading takes two steps, because the command line overrides the file that it names: ReadCommandLine parses,
// ApplyCommandLine sets options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "config/option_set.h"

namespace temper {

struct CommandLine {
  struct Setting {
    std::string name;  // of an option, or of a section with its keys in `text`
    std::string text;
    bool is_section = false;
  };
  bool help = false;  // --help or -h
  std::vector<std::string> positional;
  std::vector<Setting> settings;  // in the order given

  bool Sets(std::string_view name) const;  // whether it sets this option
};

// `arguments`: those after the command's name. Sets no option. An error names all unknown options at once.
Result<CommandLine> ReadCommandLine(std::span<const std::string> arguments, const OptionSet& options);

// Errors: values that options refuse; an option with two different values.
Status ApplyCommandLine(const CommandLine& command_line, const OptionSet& options);

// Reads the YAML file that is the only positional argument, if there is one, then applies the command line.
Status ReadOptions(Env& env, const CommandLine& command_line, const OptionSet& options);

// "--lora.r N", "--[no-]packing", "--resume[=PATH]"
std::string SyntaxOf(const Option& option);
// The help text of an option that still has its default, with that default.
std::string HelpOf(const Option& option);

inline constexpr int kHelpWidth = 120, kLeastHelpWidth = 40;

// --help of a command: `usage`, then every option by group with its type, help and default, in lines of `width`
// columns, but not more and not fewer than these.
std::string HelpText(std::string_view usage, const OptionSet& options, int width = kHelpWidth);

}  // namespace temper
