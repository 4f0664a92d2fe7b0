#include "config/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "config/mistakes.h"
#include "config/option_yaml.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

const char* const kWhere = "command line";

bool IsFlag(const Option& option) {
  return std::holds_alternative<bool*>(option.target);
}

// Words for true and false, including those that are refused with a hint. They are never names of YAML files.
bool IsTruthValue(std::string_view text) {
  for (const std::string_view word : {"true", "True", "false", "False", "yes", "no", "on", "off", "1", "0"}) {
    if (text == word) return true;
  }
  return false;
}

// The option that --no-NAME turns off, or nullptr.
const Option* Negated(std::string_view name, const OptionSet& options) {
  if (!name.starts_with("no-") && !name.starts_with("no_")) return nullptr;
  const Option* option = options.Find(name.substr(3));
  return option && IsFlag(*option) ? option : nullptr;
}

Status UnknownArgument(const std::string& name, const OptionSet& options) {
  return InvalidArgument(fmt::format("{}: unknown option --{}; {}", kWhere, name, options.Advice(name)));
}

class Reader {
 public:
  Reader(std::span<const std::string> arguments, const OptionSet& options)
      : arguments_(arguments),
        options_(options),
        mistakes_(kWhere,
                  "temper import FILE turns a script with a command of LLaMA-Factory, Axolotl or TRL into a file for "
                  "Temper") {}

  Result<CommandLine> Read() {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_++];
      if (argument == "--help" || argument == "-h") {
        result_.help = true;
      } else if (argument.starts_with("--") && argument.size() > 2) {
        mistakes_.Add(ReadOption(argument.substr(2)));
      } else if (argument.starts_with('-') && argument.size() > 1) {
        mistakes_.Add(
            InvalidArgument(fmt::format("{}: '{}' is not an option; options begin with two dashes{}", kWhere, argument,
                                        options_.Find(Name(argument.substr(1))) ? ": -" + argument : "")));
      } else {
        result_.positional.push_back(argument);
      }
    }
    TEMPER_RETURN_IF_ERROR(mistakes_.status());
    return std::move(result_);
  }

 private:
  static std::string Name(const std::string& argument) { return argument.substr(0, argument.find('=')); }

  Status ReadOption(const std::string& argument) {
    const std::string name = Name(argument);
    const bool has_value = name.size() < argument.size();
    const std::string value = has_value ? argument.substr(name.size() + 1) : "";
    const Option* option = options_.Find(name);
    if (option == nullptr) {
      if (options_.IsSection(name)) return ReadSection(name, has_value, value);
      const Option* negated = Negated(name, options_);
      if (negated == nullptr) {
        mistakes_.CountForeign(options_.IsForeign(name));
        while (!has_value && Peek() && !Peek()->starts_with("--")) ++next_;  // its values
        return UnknownArgument(name, options_);
      }
      if (has_value) return InvalidArgument(fmt::format("{}: --{} takes no value", kWhere, name));
      return Add(negated->name, "false");
    }
    if (options_.IsFormer(name)) LogInfo(fmt::format("--{} is called --{} now", name, option->name));
    if (has_value) return Add(option->name, value);
    // Without '=': a flag's value is optional (only a truth value counts as its value). An optional text never takes
    // the next argument, which could be a positional one.
    if (IsFlag(*option)) return Add(option->name, Peek() && IsTruthValue(*Peek()) ? arguments_[next_++] : "true");
    if (std::holds_alternative<OptionalText>(option->target)) return Add(option->name, "");
    if (Peek() == nullptr || Peek()->starts_with("--")) {
      return InvalidArgument(fmt::format("{}: --{} needs a value: --{} {}", kWhere, name, name, ValueHint(*option)));
    }
    return Add(option->name, arguments_[next_++]);
  }

  Status ReadSection(const std::string& name, bool has_value, const std::string& value) {
    std::string text = value;
    if (!has_value && Peek() && Peek()->starts_with('{')) text = arguments_[next_++];
    // mesh fsdp=4,tp=2: several keys of one section, without quotes.
    if (!has_value && text.empty() && Peek() && Peek()->find('=') != Peek()->npos && !Peek()->starts_with('-')) {
      text = arguments_[next_++];
    }
    if (!text.starts_with('{') && text.find('=') != text.npos) {
      if (text[text.find_last_not_of(' ')] == ',') {  // YAML would ignore it
        return InvalidArgument(
            fmt::format("{}: --{} '{}' ends in a comma; remove it, or add a KEY=VALUE after it", kWhere, name, text));
      }
      std::string mapping = "{";
      for (const char c : text)
        mapping += c == '=' ? std::string(": ") : c == ',' ? std::string(", ") : std::string(1, c);
      text = mapping + "}";
    }
    if (!text.starts_with('{')) {
      return InvalidArgument(
          fmt::format("{}: --{} is a section: name a key of it, --{}.KEY VALUE, or give "
                      "several, --{} KEY=VALUE,KEY=VALUE",
                      kWhere, name, name, name));
    }
    result_.settings.push_back({name, text, /*is_section=*/true});
    return OkStatus();
  }

  Status Add(const std::string& name, const std::string& text) {
    result_.settings.push_back({name, text});
    return OkStatus();
  }

  const std::string* Peek() const { return next_ < arguments_.size() ? &arguments_[next_] : nullptr; }

  const std::span<const std::string> arguments_;
  const OptionSet& options_;
  size_t next_ = 0;
  CommandLine result_;
  Mistakes mistakes_;
};

// What the command line has set so far. Setting an option that takes one value to another is an error, as in YAML: one
// of the two would be lost without a word. The same value again, which scripts may add, changes nothing.
class SetOnce {
 public:
  // `shown`: the value as the user wrote it.
  Status Set(const Option& option, const std::string& shown, const std::function<Status()>& set) {
    TEMPER_RETURN_IF_ERROR(set());
    const std::string value = ValueAsYaml(option);
    const auto [before, first] = given_.try_emplace(option.name, Given{shown, value});
    if (first || before->second.value == value) return OkStatus();
    return InvalidArgument(fmt::format("{}: {} is given twice, as {} and as {}: remove one", kWhere, option.name,
                                       Quoted(before->second.shown), Quoted(shown)));
  }

 private:
  struct Given {
    std::string shown, value;
  };
  std::map<std::string, Given> given_;
};

Status ApplySection(const CommandLine::Setting& setting, const OptionSet& options, SetOnce& once) {
  std::string section = setting.name;
  std::replace(section.begin(), section.end(), '-', '_');
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson keys,
                          ParseYamlValue(setting.text, fmt::format("{}, --{}", kWhere, section)));
  if (!keys.is_object()) {
    return InvalidArgument(fmt::format("{}: --{} should be a mapping, such as {{KEY: VALUE}}", kWhere, section));
  }
  for (auto it = keys.begin(); it != keys.end(); ++it) {
    const std::string name = section + "." + it.key();
    const Option* option = options.Find(name);
    if (option == nullptr) return UnknownArgument(name, options);
    // In a file, an empty value means an omitted option; on the command line there is no reason for it.
    if (it.value().is_null()) {
      return InvalidArgument(fmt::format("{}: --{}: '{}' has no value; write --{} KEY=VALUE,KEY=VALUE", kWhere, section,
                                         it.key(), section));
    }
    const std::string shown = it.value().is_string() ? it.value().get<std::string>() : DumpJson(it.value());
    TEMPER_RETURN_IF_ERROR(once.Set(*option, shown, [&] { return SetFromJson(*option, it.value(), kWhere); }));
  }
  return OkStatus();
}

// Wraps text into lines of at most `width`, each after the first
// indented by `indent`. `column`: start of the first line.
std::string Wrapped(std::string_view text, size_t column, size_t indent, size_t width) {
  std::string out;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (!out.empty() && column + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out;
}

}  // namespace

bool CommandLine::Sets(std::string_view name) const {
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& s) {
    if (!s.is_section) return s.name == name;
    if (!name.starts_with(s.name + ".")) return false;
    const auto keys = ParseYamlValue(s.text, kWhere);
    return keys.ok() && keys->is_object() && keys->contains(std::string(name.substr(s.name.size() + 1)));
  });
}

Result<CommandLine> ReadCommandLine(std::span<const std::string> arguments, const OptionSet& options) {
  return Reader(arguments, options).Read();
}

Status ApplyCommandLine(const CommandLine& command_line, const OptionSet& options) {
  SetOnce once;
  std::set<std::string> repeated;
  for (const CommandLine::Setting& setting : command_line.settings) {
    if (setting.is_section) {
      TEMPER_RETURN_IF_ERROR(ApplySection(setting, options, once));
    } else {
      const Option& option = *options.Find(setting.name);
      if (std::holds_alternative<Repeatable>(option.target)) {
        // The first replaces what a file has, as with other options.
        const bool more = !repeated.insert(option.name).second;
        TEMPER_RETURN_IF_ERROR((more ? AddFromText : SetFromText)(option, setting.text, kWhere));
        continue;
      }
      TEMPER_RETURN_IF_ERROR(once.Set(option, setting.text, [&] { return SetFromText(option, setting.text, kWhere); }));
    }
  }
  return OkStatus();
}

Status ReadOptions(Env& env, const CommandLine& command_line, const OptionSet& options) {
  if (!command_line.positional.empty()) {
    const std::string& path = command_line.positional[0];
    if (const size_t equals = path.find('='); equals != path.npos && options.Find(path.substr(0, equals))) {
      return InvalidArgument(fmt::format("{}: '{}' needs two dashes: --{}", kWhere, path, path));
    }
    for (const std::string& word : command_line.positional) {
      if (word.find('=') == word.npos || env.IsFile(word)) continue;
      return InvalidArgument(
          fmt::format("{}: '{}' belongs to no option: several values of one are joined by commas, as in --columns "
                      "prompt=question,completion=answer",
                      kWhere, word));
    }
    if (command_line.positional.size() > 1) {
      return InvalidArgument(
          fmt::format("{}: unexpected argument '{}': at most one YAML file, and options begin with two dashes", kWhere,
                      command_line.positional[1]));
    }
    if (env.IsFolder(path)) {
      const bool model = options.Find("model") && env.IsFile(JoinPath(path, "config.json"));
      return InvalidArgument(
          fmt::format("{}: '{}' is a folder, not a YAML file{}{}", kWhere, path,
                      model ? "; if it is the model, write --model " + path : "",
                      options.Find("resume") ? "; to continue from it, write --resume=" + path : ""));
    }
    // Configurations are written by hand: a file of more than a megabyte is something else.
    const auto text = ReadTextFile(env, path, MiB(1));
    const Status read = text.ok() ? ReadYamlOptions(*text, path, options) : text.status();
    const bool of_machines = text.ok() && options.Find("cluster") && text->find("\ndevice:") != text->npos &&
                             text->find("\nhost:") != text->npos;
    if (!read.ok() && of_machines) {
      return InvalidArgument(
          fmt::format("{}: '{}' describes machines, not a run: write --cluster {}", kWhere, path, path));
    }
    if (!read.ok()) {  // always a mistake in the settings
      const bool may_be_data =
          options.Find("data") && env.IsFile(path) && !path.ends_with(".yaml") && !path.ends_with(".yml");
      return InvalidArgument(
          read.message() +
          (may_be_data ? fmt::format("; '{}' was read as settings: if it is data, write --data {}", path, path) : ""));
    }
  }
  return ApplyCommandLine(command_line, options);
}

std::string SyntaxOf(const Option& option) {
  const bool attached = std::holds_alternative<OptionalText>(option.target);
  const std::string hint = ValueHint(option);
  const bool on = IsFlag(option) && ValueAsYaml(option) == "true";
  return fmt::format("--{}{}{}{}", on ? "[no-]" : "", option.name, attached || hint.empty() ? "" : " ", hint);
}

std::string HelpOf(const Option& option) {
  const std::string value = option.default_text.empty() ? ValueAsYaml(option) : option.default_text;
  const bool none = value == "null" || value == "[]" || value == "{}" || (IsFlag(option) && value == "false");
  return option.help + (none ? "" : fmt::format(" (default: {})", value));
}

std::string HelpText(std::string_view usage, const OptionSet& options, int width) {
  const auto columns = static_cast<size_t>(std::clamp(width, kLeastHelpWidth, kHelpWidth));
  // On narrow terminals what an option does stands below it.
  const size_t indent = columns < 90 ? 8 : 42;
  std::string out;
  while (!usage.empty()) {
    const std::string line(usage.substr(0, usage.find('\n')));
    usage.remove_prefix(std::min(line.size() + 1, usage.size()));
    constexpr std::string_view kUsage = "usage: ";
    out += (line.size() <= columns ? line : Wrapped(line, 0, line.starts_with(kUsage) ? kUsage.size() : 0, columns)) +
           '\n';
  }
  for (const OptionGroup& group : options.groups()) {
    out += '\n' + Wrapped(group.title + ":", 0, 2, columns) + '\n';
    for (const Option& option : group.options) {
      std::string line = "  " + SyntaxOf(option);
      // Many choices: lines end behind a '|'.
      while (line.size() > columns) {
        const size_t end = line.rfind('|', columns - 1);
        if (end == std::string::npos) break;
        out += line.substr(0, end + 1) + '\n';
        line = std::string(6, ' ') + line.substr(end + 1);
      }
      if (line.size() + 2 > indent) {
        out += line + '\n';
        line.clear();
      }
      line.resize(indent, ' ');
      out += line + Wrapped(HelpOf(option), indent, indent, columns) + '\n';
    }
  }
  return out;
}

}  // namespace temper
