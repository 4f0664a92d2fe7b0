// temper completion: scripts that complete commands, options and their values in a shell, made from the commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cluster/cluster.h"
#include "model/known_models.h"

namespace temper {
namespace {

constexpr char kCompletionUsage[] =
    "usage: temper completion bash|zsh|fish\n\n"
    "Prints a script that completes commands, options and values. To use it in this shell:\n"
    "  bash:  source <(temper completion bash)\n"
    "  zsh:   source <(temper completion zsh)\n"
    "  fish:  temper completion fish | source\n";

// What may stand after an option; a path may have words that stand beside the files.
struct Values {
  enum Kind { kNone, kWords, kPath, kText } kind = kText;
  std::vector<std::string> words = {};
};

Values ValuesOf(const Command& command, const Option& option) {
  if (&command == &kPlanCommand && option.name == "model") return {Values::kPath, KnownModelNames()};
  if (std::holds_alternative<bool*>(option.target)) return {Values::kNone};
  if (const auto* choice = std::get_if<Choice>(&option.target)) {
    return {Values::kWords, {choice->names.begin(), choice->names.end()}};
  }
  if (option.name == "cluster") {
    Values clusters{Values::kWords, {"this"}};
    for (const ClusterPreset& preset : ClusterPresets()) clusters.words.emplace_back(preset.name);
    return clusters;
  }
  const std::string hint = ValueHint(option);
  for (const std::string_view path : {"PATH", "[=PATH]", "FILE", "FOLDER"}) {
    if (hint == path) return {Values::kPath};
  }
  return {};
}

// An option as it is typed: of a flag that is on by default, the word that turns it off.
std::string Typed(const Option& option) {
  const bool on = std::holds_alternative<bool*>(option.target) && ValueAsYaml(option) == "true";
  return (on ? "no-" : "") + option.name;
}

void ForEachOption(const Command& command, const std::function<void(const Option&)>& visit) {
  command.read_options([&](const OptionSet& options) {
    for (const OptionGroup& group : options.groups()) {
      for (const Option& option : group.options) visit(option);
    }
  });
}

std::string Names() {
  std::string names;
  for (const Command* command : Commands()) names += fmt::format("{}{}", names.empty() ? "" : " ", command->name);
  return names;
}

bool TakesPath(const Command& command) {
  return command.first_word == FirstWord::kYamlFile || TakesModel(command.first_word);
}

std::string Bash() {
  std::string script = fmt::format(R"(# bash completion of temper, made by `temper completion bash`
_temper() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} options= words= path=
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "{} help --help --version" -- "$cur"))
    return
  fi
  # Bash takes --key=value for three words.
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  case $command:$prev in
)",
                                   Names());
  std::string of_commands;
  for (const Command* command : Commands()) {
    std::string paths, texts, names;
    ForEachOption(*command, [&](const Option& option) {
      const Values values = ValuesOf(*command, option);
      const std::string name = "--" + Typed(option);
      names += " " + name;
      const std::string pattern = fmt::format("{}:{}", command->name, name);
      if (!values.words.empty()) {
        script += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); {} ;;\n", pattern,
                              fmt::join(values.words, " "), values.kind == Values::kPath ? "path=1" : "return");
      } else if (values.kind == Values::kPath) {
        paths += (paths.empty() ? "" : "|") + pattern;
      } else if (values.kind == Values::kText) {
        texts += (texts.empty() ? "" : "|") + pattern;
      }
    });
    if (!paths.empty()) script += fmt::format("    {}) path=1 ;;\n", paths);
    if (!texts.empty()) script += fmt::format("    {}) return ;;\n", texts);
    of_commands += fmt::format("    {}) options=\"{} --help\" words=\"{}\"{} ;;\n", command->name,
                               names.empty() ? names : names.substr(1), command->words,
                               TakesPath(*command) ? " path=${path:-2}" : "");
  }
  return script + R"(  esac
  case $command in
    help) words=")" +
         Names() + "\" ;;\n" + of_commands + R"(  esac
  if [[ $path != 1 ]]; then
    if [[ $cur == -* ]]; then
      COMPREPLY=($(compgen -W "$options" -- "$cur"))
      return
    fi
    (( COMP_CWORD == 2 )) && COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
  if [[ $path ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$cur"))
  fi
}
complete -F _temper temper
)";
}

// Text between single quotes, with the characters escaped that mean something in a specification of _arguments.
std::string InZsh(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string Zsh() {
  std::string script = R"(#compdef temper
# zsh completion of temper, made by `temper completion zsh`
_temper() {
  local -a commands
  commands=(
)";
  for (const Command* command : Commands()) {
    script += fmt::format("    '{}:{}'\n", command->name, InZsh(command->summary));
  }
  script += R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
)";
  for (const Command* command : Commands()) {
    script += fmt::format("    {})\n      _arguments", command->name);
    ForEachOption(*command, [&](const Option& option) {
      const Values values = ValuesOf(*command, option);
      const bool optional = std::holds_alternative<OptionalText>(option.target);
      script += fmt::format(" \\\n        '{}--{}{}[{}]", std::holds_alternative<Repeatable>(option.target) ? "*" : "",
                            Typed(option),
                            values.kind == Values::kNone ? ""
                            : optional                   ? "=-"
                                                         : "=",
                            InZsh(option.help));
      if (values.kind != Values::kNone) {
        script += fmt::format("{}:{}:", optional ? ":" : "", values.kind == Values::kPath ? "path" : "value");
      }
      if (values.kind == Values::kWords) script += fmt::format("({})", fmt::join(values.words, " "));
      if (values.kind == Values::kPath && !values.words.empty()) {
        script += fmt::format("{{compadd {}; _files}}", fmt::join(values.words, " "));
      } else if (values.kind == Values::kPath) {
        script += "_files";
      }
      script += "'";
    });
    if (*command->words != '\0') {
      script += fmt::format(" \\\n        '1:word:({})'", command->words);
      if (TakesPath(*command)) script += " \\\n        '2:path:_files'";
    } else if (TakesPath(*command)) {
      script += " \\\n        '1:path:_files'";
    }
    script += " \\\n        '--help[show the options]'\n      ;;\n";
  }
  return script + R"(  esac
}
if [[ $funcstack[1] == _temper ]]; then
  _temper "$@"
else
  compdef _temper temper
fi
)";
}

// Text between single quotes.
std::string InFish(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string Fish() {
  std::string script = "# fish completion of temper, made by `temper completion fish`\ncomplete -c temper -f\n";
  for (const Command* command : Commands()) {
    script += fmt::format("complete -c temper -n __fish_use_subcommand -a {} -d '{}'\n", command->name,
                          InFish(command->summary));
    const std::string in = fmt::format("complete -c temper -n '__fish_seen_subcommand_from {}'", command->name);
    if (*command->words != '\0') script += fmt::format("{} -a '{}'\n", in, command->words);
    if (TakesPath(*command)) script += in + " -F\n";
    ForEachOption(*command, [&](const Option& option) {
      const Values values = ValuesOf(*command, option);
      script += fmt::format("{} -l {}", in, Typed(option));
      if (values.kind == Values::kWords) script += fmt::format(" -x -a '{}'", fmt::join(values.words, " "));
      if (values.kind == Values::kPath)
        script += std::holds_alternative<OptionalText>(option.target) ? " -F" : " -r -F";
      if (values.kind == Values::kPath && !values.words.empty()) {
        script += fmt::format(" -a '{}'", fmt::join(values.words, " "));
      }
      if (values.kind == Values::kText) script += " -x";
      script += fmt::format(" -d '{}'\n", InFish(option.help));
    });
  }
  return script;
}

struct CompletionSettings {
  static std::vector<OptionGroup> Groups() { return {}; }
};

Result<int> Completion(const Arguments& arguments) {
  const std::string shell = arguments.empty() ? "" : arguments[0];
  std::string (*script)() = shell == "bash" ? Bash : shell == "zsh" ? Zsh : shell == "fish" ? Fish : nullptr;
  if (script == nullptr && !shell.starts_with('-')) {
    return InvalidArgument("name a shell: temper completion bash, zsh or fish");
  }
  const Arguments rest(arguments.begin() + (script != nullptr), arguments.end());
  TEMPER_ASSIGN_OR_RETURN(const auto line, ReadCommandOptions(rest, {}, kCompletionCommand));
  if (!line) return 0;
  std::fputs(script().c_str(), stdout);
  return 0;
}

}  // namespace

const Command kCompletionCommand = {.name = "completion",
                                    .summary = "print a completion script for bash, zsh or fish",
                                    .usage = kCompletionUsage,
                                    .first_word = FirstWord::kOneOf,
                                    .words = "bash zsh fish",
                                    .run = Completion,
                                    .read_options = ReadOptionsOf<CompletionSettings>};

}  // namespace temper
