#include "model/lora_selector.h"

#include <algorithm>
#include <utility>

#include "model/lora_names.h"

namespace temper {

Result<LoraSelector> LoraSelector::Create(const LoraConfig& config, const std::string& file) {
  LoraSelector selector(config);
  Result<LoraLayers> layers = LoraLayers::Create(config);
  if (!layers.ok()) return layers.status().WithContext(file.empty() ? "lora" : file);
  selector.layers_ = std::move(*layers);
  if (!config.target_regex().empty()) {
    TEMPER_ASSIGN_OR_RETURN(selector.targets_, PatternOf(SettingCalled("target_modules", file), config.target_regex()));
  }
  if (!config.exclude_regex().empty()) {
    TEMPER_ASSIGN_OR_RETURN(selector.excluded_,
                            PatternOf(SettingCalled("exclude_modules", file), config.exclude_regex()));
  }
  return selector;
}

Result<bool> LoraSelector::Selects(const LinearModule& module) {
  if (module.is_parameter) {
    bool selected = false;
    for (const std::string& name : parameters_) {
      if (!NameMatches(module.path, name)) continue;
      matched_parameters_.insert(name);
      selected = true;
    }
    return selected;
  }
  const std::vector<std::string> paths = NamesOf(module);
  const auto is_called = [&](const std::string& name) {
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return NameMatches(path, name); });
  };
  bool selected = false, by_whole_path = false;
  if (targets_) {
    TEMPER_ASSIGN_OR_RETURN(selected, MatchesAny(*targets_, paths));
  } else if (config_.all_linear()) {
    selected = !module.is_head;
  } else {
    for (const std::string& name : config_.target_names()) {
      if (!is_called(name)) continue;
      matched_.insert(name);
      selected = true;
      by_whole_path |= std::find(paths.begin(), paths.end(), name) != paths.end();
    }
  }
  if (selected && layers_->choose() && !by_whole_path) {
    selected = false;
    for (const std::string& path : paths) {
      TEMPER_ASSIGN_OR_RETURN(const bool has, layers_->Has(path));
      selected |= has;
    }
  }
  if (!selected) return false;
  TEMPER_ASSIGN_OR_RETURN(const bool left_out, LeavesOut(paths));
  return !left_out;
}

Result<bool> LoraSelector::LeavesOut(const std::vector<std::string>& paths) const {
  // Trained in full instead: a module that a name of modules_to_save is, or that lies inside one.
  const auto is_saved = [&](const std::string& name) {
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return ("." + path + ".").find("." + name + ".") != std::string::npos;
    });
  };
  const auto is_called = [&](const std::string& name) {
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return NameMatches(path, name); });
  };
  if (std::any_of(saved_.begin(), saved_.end(), is_saved)) return true;
  const std::vector<std::string>& names = config_.exclude_names();
  if (std::any_of(names.begin(), names.end(), is_called)) return true;
  if (!excluded_) return false;
  return MatchesAny(*excluded_, paths);
}

Result<bool> LoraSelector::Matches(const std::string& key) const {
  TEMPER_ASSIGN_OR_RETURN(const bool matches, targets_->Matches(key));
  if (!matches) return false;
  TEMPER_ASSIGN_OR_RETURN(const bool left_out, LeavesOut({key}));
  return !left_out;
}

std::vector<LoraSelector::Idle> LoraSelector::Unmatched() const {
  std::vector<Idle> idle;
  for (const std::string& n : config_.target_names()) {
    if (!matched_.contains(n)) idle.push_back({"target_modules", n});
  }
  for (const std::string& n : parameters_) {
    if (!matched_parameters_.contains(n)) idle.push_back({"target_parameters", n});
  }
  return idle;
}

}  // namespace temper
