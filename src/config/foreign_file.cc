#include "config/foreign_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "format/json.h"
#include "format/quoted.h"
#include "format/yaml.h"

namespace temper {
namespace {

// Words of a shell script: quotes and backslashes as in a shell, comments left out, nothing expanded.
Result<std::vector<ForeignWord>> ShellWords(std::string_view text, const std::string& file) {
  std::vector<ForeignWord> words;
  bool open = false;  // a word has begun
  char quote = 0;
  int line = 1;
  const auto add = [&](char c) {
    if (!open) words.push_back({"", line});
    open = true;
    if (c != 0) words.back().text += c;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      if (text[++i] != '\n') add(text[i]);
    } else if (quote != 0) {
      c == quote ? void(quote = 0) : add(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      add(0);
    } else if (c == '#' && !open) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == '&') {
      open = false;
    } else {
      add(c);
    }
    if (text[i] == '\n') ++line;
  }
  if (quote != 0) return InvalidArgument(fmt::format("{}: a quote is not closed", file));
  return words;
}

// Scripts that a launcher starts stand among its options; they are never values.
bool IsOption(const std::string& word) {
  return word.starts_with("--") && word.size() > 2;
}

bool IsValue(const std::string& word) {
  return !IsOption(word) && !word.ends_with(".py");
}

Result<ForeignFile> ReadOptionsOfCommand(std::string_view text, const std::string& file) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<ForeignWord> words, ShellWords(text, file));
  ForeignFile found;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!IsOption(words[i].text)) {
      found.programs.push_back(words[i]);
      continue;
    }
    const std::string where = fmt::format("{} line {}", file, words[i].line);
    const size_t equals = words[i].text.find('=');
    ForeignSetting setting{words[i].text.substr(2, equals == std::string::npos ? equals : equals - 2), nullptr,
                           words[i].line};
    for (char& c : setting.name) c = c == '-' ? '_' : c;
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(words[i].text.substr(equals + 1));
    while (values.empty() || equals == std::string::npos) {
      if (i + 1 == words.size() || !IsValue(words[i + 1].text)) break;
      values.push_back(words[++i].text);
    }
    OrderedJson list = OrderedJson::array();
    for (const std::string& value : values) {
      if (value.find('$') != std::string::npos) {
        return InvalidArgument(fmt::format("{}: --{} has the shell variable {}; write its value into the file", where,
                                           setting.name, Quoted(value)));
      }
      auto parsed = ParseYaml(value, where, YamlVersion::k11);
      if (!parsed.ok()) return InvalidArgument(parsed.status().message());
      list.push_back(std::move(parsed->value));
    }
    setting.value = list.empty() ? OrderedJson(true) : list.size() == 1 ? list[0] : list;
    found.settings.push_back(std::move(setting));
  }
  return found;
}

}  // namespace

std::string ForeignSetting::Text() const {
  if (value.is_string()) return value.get<std::string>();
  return DumpJson(value);
}

std::string ForeignSetting::Shown() const {
  constexpr size_t kLongest = 60;
  std::string text = Text();
  if (text.size() > kLongest) text.replace(kLongest, text.npos, "...");
  return fmt::format("line {}, {}: {}", line, name, OneLine(text));
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

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

Result<ForeignFile> ReadForeignFile(std::string_view text, const std::string& file) {
  const auto document = ParseYaml(text, file, YamlVersion::k11);  // as PyYAML, which all these tools use
  ForeignFile found;
  if (document.ok() && document->value.is_object()) {
    size_t i = 0;
    for (auto it = document->value.begin(); it != document->value.end(); ++it, ++i) {
      found.settings.push_back({it.key(), it.value(), document->lines.children[i].line});
    }
  } else {
    auto options = ReadOptionsOfCommand(text, file);
    if (!options.ok() || options->settings.empty()) {
      if (!options.ok() && document.ok()) return options.status();
      if (!document.ok()) return document.status();
      return InvalidArgument(
          fmt::format("{}: neither lines of 'key: value' nor a command with --options was found", file));
    }
    found = *std::move(options);
  }
  return found;
}

}  // namespace temper
