#include "format/yaml_mistake.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/quantity.h"
#include "format/quoted.h"

namespace temper {
namespace {

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t IndentOf(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Without white space at both ends, and without the dashes of list items.
std::string_view ContentOf(std::string_view line) {
  line.remove_prefix(IndentOf(line));
  while (line.starts_with("- ")) {
    line.remove_prefix(1);
    line.remove_prefix(IndentOf(line));
  }
  const size_t end = line.find_last_not_of(" \t");
  return end == line.npos ? "" : line.substr(0, end + 1);
}

bool SaysNothing(std::string_view line) {
  const std::string_view content = ContentOf(line);
  return content.empty() || content.starts_with('#');
}

// How many letters of a key's name a line begins with.
size_t NameLength(std::string_view content) {
  const auto is_of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  const auto* const end = std::find_if_not(content.begin(), content.end(), is_of_name);
  return static_cast<size_t>(end - content.begin());
}

bool IsKey(std::string_view content) {
  const size_t name = NameLength(content);
  return name > 0 && name < content.size() && content[name] == ':' &&
         (name + 1 == content.size() || content[name + 1] == ' ');
}

// What is wrong with a line on its own; empty: nothing that is known.
std::string MistakeOf(std::string_view line) {
  const std::string_view content = ContentOf(line);
  const size_t name = NameLength(content);
  if (name == 0) return "";
  const std::string_view rest = content.substr(name);
  if (rest.starts_with(':') && rest.size() > 1 && rest[1] != ' ') return "a key needs ': ' behind it, with a space";
  if (rest.starts_with(" :")) return "";  // YAML allows it
  const bool has_value = (rest.starts_with(' ') || rest.starts_with('=')) && rest.find(": ") == rest.npos;
  if (has_value && !line.ends_with(':') && !content.starts_with('-')) return "a key needs ': ' behind it";
  if (!IsKey(content) || rest.size() < 3) return "";
  const std::string_view value = ContentOf(rest.substr(1));
  const char first = value.empty() ? ' ' : value.front();
  const bool quoted = first == '"' || first == '\'', in_brackets = first == '[' || first == '{';
  if (!quoted && !in_brackets && value.find(": ") != value.npos) return "a value that holds ': ' needs quotes";
  if (first == '@' || first == '`' || first == '%') {
    return fmt::format("a value that begins with '{}' needs quotes", first);
  }
  if (quoted && (value.size() == 1 || value.find(first, 1) == value.npos)) {
    return fmt::format("the quote {} is not closed", first);
  }
  const char closing = first == '[' ? ']' : '}';
  if (in_brackets && std::count(value.begin(), value.end(), first) > std::count(value.begin(), value.end(), closing)) {
    return fmt::format("the bracket {} is not closed", first);
  }
  return "";
}

// Of a line whose indentation belongs to no section; empty: it does.
std::string MistakeOfIndent(const std::vector<std::string_view>& lines, size_t at, size_t before) {
  const size_t own = IndentOf(lines[at]), others = IndentOf(lines[before]);
  if (own == others || !IsKey(ContentOf(lines[at]))) return "";
  const bool has_value = IsKey(ContentOf(lines[before])) && !ContentOf(lines[before]).ends_with(':');
  const bool known = std::any_of(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(at),
                                 [&](auto line) { return !SaysNothing(line) && IndentOf(line) == own; });
  if (own > others ? !has_value : known) return "";
  return fmt::format("the line is indented by {}, line {} by {}: keys of one section stand below each other",
                     Counted(static_cast<int64_t>(own), "space"), before + 1, others);
}

}  // namespace

YamlMistake FindYamlMistake(std::string_view text, int line, const std::string& says) {
  const std::vector<std::string_view> lines = LinesOf(text);
  YamlMistake found{.line = line + 1, .what = Quoted(says)};
  if (lines.empty()) return found;
  const auto last_before = [&](size_t end) {
    while (end > 0 && SaysNothing(lines[end - 1])) --end;
    return end;  // 0: none
  };
  // The line of the parser's mark, or the last that says something, and the one before that.
  const size_t at = last_before(std::min(static_cast<size_t>(std::max(line, 0)) + 1, lines.size()));
  if (at == 0) return found;
  const size_t before = last_before(at - 1);
  const auto tell = [&](size_t number, const std::string& what) {
    return YamlMistake{static_cast<int>(number), fmt::format("{}: {}", Quoted(ContentOf(lines[number - 1])), what)};
  };
  for (const size_t number : {before, at}) {
    if (number == 0) continue;
    if (const std::string what = MistakeOf(lines[number - 1]); !what.empty()) return tell(number, what);
  }
  if (before > 0) {
    if (const std::string what = MistakeOfIndent(lines, at - 1, before - 1); !what.empty()) return tell(at, what);
  }
  return tell(at, says);
}

}  // namespace temper
