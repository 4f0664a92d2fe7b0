#include "model/lora_parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "model/lora_names.h"
#include "model/lora_selector.h"

namespace temper {
namespace {

// What target_modules, a text, names in a model whose modules have become parameters, as PEFT resolves it there: last
// components of the linear modules and of the modules that were, of all or of those that an expression matches.
struct NamesOfText {
  std::set<std::string> names;
  std::set<const LinearModule*> matched;  // by an expression
};
Result<NamesOfText> ResolveText(const std::vector<LinearModule>& modules, const LoraConfig& config,
                                const std::string& file) {
  NamesOfText found;
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  if (config.all_linear()) {
    for (const LinearModule& m : modules) {
      if (m.is_parameter) {
        found.names.insert(m.module_names.begin(), m.module_names.end());
      } else if (!m.is_head) {
        found.names.insert(last(m.path));
      }
    }
    return found;
  }
  TEMPER_ASSIGN_OR_RETURN(const LoraSelector selector, LoraSelector::Create(config, file));
  for (const LinearModule& m : modules) {
    std::vector<std::string> keys = NamesOf(m);
    if (m.is_parameter) {
      keys.clear();
      for (const std::string& name : m.module_names) keys.push_back(OwnerOf(m.path) + "." + name);
      if (keys.size() == 1 && m.matrices == 0) keys = {OwnerOf(m.path)};  // a router: the module itself
    }
    for (const std::string& key : keys) {
      TEMPER_ASSIGN_OR_RETURN(const bool matches, selector.Matches(key));
      if (!matches) continue;
      found.names.insert(last(key));
      found.matched.insert(&m);
    }
  }
  return found;
}

}  // namespace

Result<LoraConfig> WithParameters(const std::vector<LinearModule>& modules, const LoraConfig& given,
                                  const std::string& file) {
  std::map<std::string, const LinearModule*> parameters;  // by the modules that they were
  for (const LinearModule& m : modules) {
    for (const std::string& name : m.module_names) parameters.emplace(name, &m);
  }
  if (parameters.empty()) return given;
  LoraConfig config = given;
  std::set<std::string> names(given.target_names().begin(), given.target_names().end());
  if (given.all_linear() || !given.target_regex().empty()) {
    TEMPER_ASSIGN_OR_RETURN(const NamesOfText found, ResolveText(modules, given, file));
    if (found.names.empty()) return given;
    names = found.names;
    // The names apply to all layers. A file that PEFT wrote has a list.
    for (const LinearModule& m : modules) {
      if (given.all_linear() || !file.empty() || found.matched.contains(&m)) continue;
      const auto means = [&](const std::string& name) {
        const auto& was = m.module_names;
        return m.is_parameter ? std::find(was.begin(), was.end(), name) != was.end()
                              : NameMatches(m.path, name) && !parameters.contains(name);
      };
      TEMPER_ASSIGN_OR_RETURN(const LoraSelector selector, LoraSelector::Create(given, file));
      TEMPER_ASSIGN_OR_RETURN(const bool left_out, selector.LeavesOut(NamesOf(m)));
      if (left_out || std::none_of(names.begin(), names.end(), means)) continue;
      return InvalidArgument(fmt::format(
          "target_modules: in a mixture PEFT takes the names of the modules that an expression matches, in all layers, "
          "and this one does not match {}: list names instead",
          m.path));
    }
  }
  std::vector<std::string> others, all_parameters = given.parameter_names();
  std::map<const LinearModule*, std::set<std::string>> named;  // of each parameter, which of the modules that it was
  for (const std::string& target : names) {
    const auto it =
        std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return NameMatches(target, p.first); });
    if (it == parameters.end()) {
      others.push_back(target);
    } else {
      named[it->second].insert(it->first);
    }
  }
  if (named.empty() && given.target_regex().empty()) return given;
  if (!named.empty() && (given.r < 1 || given.r > kMaxLoraRank)) {
    return InvalidArgument(fmt::format("LoRA rank {}; it must be from 1 to {}", given.r, kMaxLoraRank));
  }
  for (const auto& [parameter, found] : named) {
    const std::string name = ShortName(parameter->path);
    const size_t all = parameter->module_names.size();
    for (const std::string& other : parameter->module_names) {
      if (found.contains(other)) continue;
      return InvalidArgument(
          fmt::format("target_modules names {} and not {}, but they are one parameter, {}: name both, or none",
                      *found.begin(), other, name));
    }
    if (std::find(all_parameters.begin(), all_parameters.end(), name) == all_parameters.end()) {
      all_parameters.push_back(name);
    }
    if (all == 1) continue;
    // A of the fused parameter is as large as those of its parts together, and scaled alike.
    const auto override_with = [&](auto& patterns, auto value) {
      const std::string key = ".*\\." + name;
      const auto it = std::find_if(patterns.begin(), patterns.end(), [&](const auto& p) { return p.first == key; });
      it == patterns.end() ? void(patterns.emplace_back(key, value)) : void(it->second = value);
    };
    override_with(config.rank_pattern, config.r * static_cast<int64_t>(all));
    override_with(config.alpha_pattern, config.alpha * static_cast<double>(all));
  }
  std::sort(all_parameters.begin(), all_parameters.end());
  config.target_parameters = std::move(all_parameters);
  config.target_modules = std::move(others);
  return config;
}

}  // namespace temper
