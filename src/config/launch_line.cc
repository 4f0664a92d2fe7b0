#include "config/launch_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "format/json.h"
#include "format/quoted.h"
#include "format/yaml.h"

namespace temper {
namespace {

// Programs that are tools by themselves. What follows says what they do: "trl dpo", "axolotl train".
struct Tool {
  std::string_view program;
  ForeignTool tool;
  std::string_view other = {};  // a tool whose recipes are not read
};
constexpr Tool kTools[] = {{"llamafactory-cli", ForeignTool::kLlamaFactory},
                           {"lmf", ForeignTool::kLlamaFactory},
                           {"llamafactory", ForeignTool::kLlamaFactory},
                           {"axolotl", ForeignTool::kAxolotl},
                           {"trl", ForeignTool::kTrl},
                           {"swift", ForeignTool::kAny, "ms-swift"},
                           {"megatron", ForeignTool::kAny, "ms-swift"},
                           {"tune", ForeignTool::kAny, "torchtune"},
                           {"xtuner", ForeignTool::kAny, "XTuner"},
                           {"litgpt", ForeignTool::kAny, "LitGPT"},
                           {"autotrain", ForeignTool::kAny, "AutoTrain"},
                           {"mlx_lm.lora", ForeignTool::kAny, "mlx-lm"},
                           {"mlx_lm", ForeignTool::kAny, "mlx-lm"}};

const Tool* ToolOf(std::string_view word) {
  const std::string_view name = word.substr(word.rfind('/') + 1);
  const auto* const at =
      std::find_if(std::begin(kTools), std::end(kTools), [&](const Tool& tool) { return tool.program == name; });
  return at == std::end(kTools) ? nullptr : at;
}

// By a package's name in front of a module or in a path: "axolotl.cli.train", "trl/scripts/dpo.py".
const Tool* ToolOfPackage(std::string_view program) {
  for (size_t from = 0; from < program.size();) {
    const size_t to = std::min(program.find_first_of("./", from), program.size());
    const Tool* const tool = ToolOf(program.substr(from, to - from));
    const bool package = tool != nullptr && (tool->tool != ForeignTool::kAny || tool->program == "swift");
    if (package) return tool;
    from = to + 1;
  }
  return nullptr;
}

bool IsOption(std::string_view word) {
  return word.starts_with("--") && word.size() > 2;
}

bool IsScript(std::string_view word) {
  return word.ends_with(".py");
}

bool IsRecipe(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

// The place of the program's word. A launcher's options have one value at most, which is no program.
std::optional<size_t> FindProgram(const std::vector<ScriptWord>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (word == "-m" && i + 1 < words.size()) return i + 1;
    if (IsScript(word) || ToolOf(word) != nullptr) return i;
    const bool plain = i + 1 < words.size() && !IsScript(words[i + 1].text) && words[i + 1].text != "-m" &&
                       !IsOption(words[i + 1].text) && ToolOf(words[i + 1].text) == nullptr;
    if (IsOption(word) && word.find('=') == word.npos && plain) ++i;
  }
  return std::nullopt;
}

class LineReader {
 public:
  LineReader(const ScriptCommand& command, const std::string& file)
      : words_(command.words), assignments_(command.assignments), file_(file) {}

  Result<LaunchLine> Read() {
    const std::optional<size_t> program = FindProgram(words_);
    for (size_t i = 0; i < program.value_or(words_.size()); ++i) {
      if (IsOption(words_[i].text)) TEMPER_RETURN_IF_ERROR(ReadOption(i, program ? 1 : words_.size()));
    }
    ReadAssignments();
    if (!program) return std::move(line_);
    size_t next = *program + 1;
    ReadProgram(*program, next);
    for (; next < words_.size(); ++next) {
      const ScriptWord& word = words_[next];
      if (IsOption(word.text)) {
        TEMPER_RETURN_IF_ERROR(ReadOption(next, words_.size()));
      } else if (IsRecipe(word.text) && line_.recipe.text.empty()) {
        TEMPER_RETURN_IF_ERROR(CheckKnown(word, "the recipe"));
        line_.recipe = {word.text, word.line};
      } else if (const size_t equals = word.text.find('='); equals != word.text.npos && equals > 0) {
        TEMPER_RETURN_IF_ERROR(
            Add(word.text.substr(0, equals), {{word.text.substr(equals + 1), word.line, word.is_open}}, word.line));
      }
    }
    return std::move(line_);
  }

 private:
  void ReadProgram(size_t at, size_t& next) {
    const ScriptWord& word = words_[at];
    line_.program.word = {word.text, word.line};
    const Tool* tool = ToolOf(word.text);
    if (tool != nullptr) {
      // "trl dpo": what it does is the next word.
      if (next < words_.size() && !words_[next].text.starts_with('-') && !IsRecipe(words_[next].text)) {
        line_.program.word = {words_[next].text, words_[next].line};
        line_.program.does = words_[next].text;
        ++next;
      }
    } else {
      tool = ToolOfPackage(word.text);
    }
    if (tool == nullptr) return;
    line_.program.tool = tool->tool;
    line_.program.other_tool = tool->other;
  }

  // How many processes a launcher is given by the environment.
  void ReadAssignments() {
    for (const ScriptWord& word : assignments_) {
      constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES=";
      if (!word.text.starts_with(kDevices) || word.is_open) continue;
      const std::string_view devices = std::string_view(word.text).substr(kDevices.size());
      const int64_t count = devices.empty() ? 0 : 1 + std::count(devices.begin(), devices.end(), ',');
      if (count > 1) line_.settings.push_back({"CUDA_VISIBLE_DEVICES", count, word.line});
    }
  }

  Status CheckKnown(const ScriptWord& word, std::string_view what) const {
    if (!word.is_open) return OkStatus();
    return InvalidArgument(
        fmt::format("{} line {}: {} has the shell variable {}, which the script does not set to a "
                    "plain text; write its value into the file",
                    file_, word.line, what, Quoted(word.text)));
  }

  // At an option; leaves `i` at the last of its values.
  Status ReadOption(size_t& i, size_t most_values) {
    const ScriptWord& option = words_[i];
    const size_t equals = option.text.find('=');
    const std::string name = option.text.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::vector<ScriptWord> values;
    if (equals != std::string::npos) {
      values.push_back({option.text.substr(equals + 1), option.line, option.is_open});
    } else {
      while (values.size() < most_values && i + 1 < words_.size()) {
        const std::string& next = words_[i + 1].text;
        if (IsOption(next) || IsScript(next) || next == "-m") break;
        values.push_back(words_[++i]);
      }
    }
    return Add(name, values, option.line);
  }

  Status Add(std::string name, const std::vector<ScriptWord>& values, int line) {
    std::replace(name.begin(), name.end(), '-', '_');
    OrderedJson list = OrderedJson::array();
    for (const ScriptWord& value : values) {
      TEMPER_RETURN_IF_ERROR(CheckKnown(value, "--" + name));
      auto parsed = ParseYaml(value.text, fmt::format("{} line {}", file_, line), YamlVersion::k11);
      if (!parsed.ok()) return InvalidArgument(parsed.status().message());
      list.push_back(std::move(parsed->value));
    }
    if (name == "config" && values.size() == 1 && IsRecipe(values[0].text) && line_.recipe.text.empty()) {
      line_.recipe = {values[0].text, line};
      return OkStatus();
    }
    line_.settings.push_back({std::move(name),
                              list.empty()       ? OrderedJson(true)
                              : list.size() == 1 ? list[0]
                                                 : list,
                              line});
    return OkStatus();
  }

  const std::vector<ScriptWord>& words_;
  const std::vector<ScriptWord>& assignments_;
  const std::string& file_;
  LaunchLine line_;
};

size_t CountOptions(const ScriptCommand& command) {
  return static_cast<size_t>(std::count_if(command.words.begin(), command.words.end(),
                                           [](const ScriptWord& word) { return IsOption(word.text); }));
}

// Whether a command starts a tool or a script of Python, not one of the commands around it.
bool Starts(const ScriptCommand& command) {
  const auto program = FindProgram(command.words);
  return program && command.words[0].text != "pip" && command.words[0].text != "cd";
}

}  // namespace

Result<LaunchLine> FindLaunchLine(std::string_view script, const std::string& file) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ScriptCommand> commands, ReadShellScript(script, file));
  const ScriptCommand *best = nullptr, *of_tool = nullptr;
  for (const ScriptCommand& command : commands) {
    const bool starts = Starts(command);
    const bool better =
        best == nullptr || std::pair(starts, CountOptions(command)) > std::pair(Starts(*best), CountOptions(*best));
    if (better) best = &command;
    if (!starts) continue;
    const Tool* const tool = ToolOf(command.words[*FindProgram(command.words)].text);
    if (tool == nullptr) continue;
    if (of_tool != nullptr) {
      return InvalidArgument(fmt::format("{} starts two runs, in lines {} and {}: import a script with one of them",
                                         file, of_tool->words[0].line, command.words[0].line));
    }
    of_tool = &command;
  }
  if (of_tool != nullptr) best = of_tool;
  if (best == nullptr) return LaunchLine();
  return LineReader(*best, file).Read();
}

std::vector<std::string> NameWords(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);
  std::vector<std::string> words;
  bool inside = false;
  for (const unsigned char c : program) {
    if (!std::isalpha(c)) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    words.back() += static_cast<char>(std::tolower(c));
  }
  return words;
}

}  // namespace temper
