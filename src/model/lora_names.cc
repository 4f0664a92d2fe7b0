#include "model/lora_names.h"

#include <fmt/core.h>

namespace temper {

bool NameMatches(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

Result<bool> MatchesAny(const Pattern& pattern, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    TEMPER_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(name));
    if (matches) return true;
  }
  return false;
}

Result<Pattern> PatternOf(const std::string& setting, const std::string& expression) {
  Result<Pattern> pattern = Pattern::Compile(expression);
  if (!pattern.ok()) return pattern.status().WithContext(setting);
  return pattern;
}

std::string SettingCalled(const char* key, const std::string& file) {
  return file.empty() ? std::string("lora.") + key : fmt::format("{}: {}", file, key);
}

std::string ShortName(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == path.npos) return path;
  const std::string last = path.substr(dot + 1);
  const bool number = last.find_first_not_of("0123456789") == last.npos;
  return last == "weight" || number ? path.substr(path.rfind('.', dot - 1) + 1) : last;
}

std::string OwnerOf(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string NamesInMessage(const std::set<std::string>& paths) {
  std::set<std::string> names;
  for (const std::string& p : paths) names.insert(ShortName(p));
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

}  // namespace temper
