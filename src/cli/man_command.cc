// temper man: the manual page, in roff, made from the commands and their options.
#include <fmt/core.h>

#include <cstdio>
#include <set>

#include "cli/command_options.h"
#include "cli/commands.h"

namespace temper {
namespace {

constexpr char kManUsage[] =
    "usage: temper man\n\n"
    "Prints the manual page. To read it: temper man | man -l -\n";

// Text as roff shows it letter by letter: no line begins with a command, '-' stays a minus that can be pasted, and a
// line may be broken behind a '|', as lists of choices need it.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '|') {
      out += "|\\:";
    } else {
      out += c;
    }
  }
  return out;
}

// The usage of a command: its first line in bold, then paragraphs.
std::string UsageInRoff(std::string_view usage) {
  const std::string_view prefix = "usage: ";
  if (usage.starts_with(prefix)) usage.remove_prefix(prefix.size());
  const size_t end = usage.find('\n');
  std::string out = fmt::format(".B {}\n", Roff(usage.substr(0, end)));
  bool paragraph = true;
  for (std::string_view rest = usage.substr(end + 1); !rest.empty();) {
    const size_t line = rest.find('\n');
    if (line == 0) {
      paragraph = true;
    } else {
      if (paragraph) out += ".PP\n";
      paragraph = false;
      out += Roff(rest.substr(0, line)) + "\n";
    }
    rest.remove_prefix(line == rest.npos ? rest.size() : line + 1);
  }
  return out;
}

// The options of all groups, without those of `known`: these are described with another command.
std::string OptionsInRoff(const OptionSet& options, const std::set<std::string>& known) {
  std::string out;
  for (const OptionGroup& group : options.groups()) {
    std::string rows;
    for (const Option& option : group.options) {
      if (known.contains(option.name)) continue;
      rows += fmt::format(".TP\n.B {}\n{}\n", Roff(SyntaxOf(option)), Roff(HelpOf(option)));
    }
    if (!rows.empty()) out += fmt::format(".PP\n.I {}\n{}", Roff(group.title), rows);
  }
  return out;
}

std::string ManPage() {
  std::string page = fmt::format(
      ".\\\" Made by `temper man`.\n"
      ".TH TEMPER 1 \"\" \"temper {}\" \"User Commands\"\n"
      ".ad l\n"  // lists of choices have no spaces to stretch
      ".SH NAME\ntemper \\- fine\\-tune large language models on the hardware you have\n"
      ".SH SYNOPSIS\n.B temper\n.I COMMAND\n[\\-\\-option value ...]\n"
      ".SH COMMANDS\n",
      TEMPER_VERSION);
  for (const Command* command : Commands()) {
    page += fmt::format(".TP\n.B {}\n{}\n", command->name, Roff(command->summary));
  }
  std::set<std::string> of_train;
  for (const Command* command : Commands()) {
    page += fmt::format(
        ".SH \"TEMPER {}\"\n{}",
        [&] {
          std::string upper = command->name;
          for (char& c : upper) c = static_cast<char>(c - 'a' + 'A');
          return upper;
        }(),
        UsageInRoff(command->usage));
    command->read_options([&](const OptionSet& options) {
      if (command == &kTrainCommand) {
        page += OptionsInRoff(options, {});
        for (const OptionGroup& group : options.groups()) {
          for (const Option& option : group.options) of_train.insert(option.name);
        }
      } else if (command == &kPlanCommand) {
        page += ".PP\nIts options are those of\n.B temper train\nand these:\n" + OptionsInRoff(options, of_train);
      } else {
        page += OptionsInRoff(options, {});
      }
    });
  }
  return page +
         ".SH \"EXIT STATUS\"\n"
         ".TP\n.B 0\nDone.\n"
         ".TP\n.B 1\nAn error, described on stderr.\n"
         ".TP\n.B 2\nAn error of the command line or the configuration.\n"
         ".TP\n.B 3\nThe loss of a run with \\-\\-stop_on_divergence stayed above its start.\n"
         ".TP\n.B 75\nA run was stopped by SIGTERM, SIGHUP or SIGUSR1; the same command with \\-\\-resume continues "
         "it.\n"
         ".TP\n.B 130\nA run was stopped by SIGINT.\n";
}

struct ManSettings {
  static std::vector<OptionGroup> Groups() { return {}; }
};

Result<int> Man(const Arguments& arguments) {
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(arguments, {}, kManCommand));
  if (line) std::fputs(ManPage().c_str(), stdout);
  return 0;
}

}  // namespace

const Command kManCommand = {.name = "man",
                             .summary = "print the manual page",
                             .usage = kManUsage,
                             .first_word = FirstWord::kNone,
                             .words = "",
                             .run = Man,
                             .read_options = ReadOptionsOf<ManSettings>};

}  // namespace temper
