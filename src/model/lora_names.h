// How PEFT, settings and messages call the modules that may have adapters.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/pattern.h"

namespace temper {

// A module of this path answers to its last components.
bool NameMatches(const std::string& path, const std::string& name);

// What PEFT calls a module: its path, and those of earlier versions of its class.
template <class Module>
std::vector<std::string> NamesOf(const Module& module) {
  std::vector<std::string> names = {module.path};
  names.insert(names.end(), module.older_paths.begin(), module.older_paths.end());
  return names;
}

// A module answers to any of its names.
Result<bool> MatchesAny(const Pattern& pattern, const std::vector<std::string>& names);
// Errors name the setting.
Result<Pattern> PatternOf(const std::string& setting, const std::string& expression);

// What messages call a setting: an option of the run, or a key of the adapter's file.
std::string SettingCalled(const char* key, const std::string& file);

// What target_parameters calls a parameter of every layer, target_modules a module: "gate.weight", "down_proj". A
// number is a place in a list, as blocks have one: the list's name comes before it (CTRL's "ffn.0"), or PEFT would take
// blocks for modules.
std::string ShortName(const std::string& path);
// The module that has a parameter.
std::string OwnerOf(const std::string& parameter);
// The names by which a message lists modules: the last components of their paths, and of parameters also "weight".
std::string NamesInMessage(const std::set<std::string>& paths);

}  // namespace temper
