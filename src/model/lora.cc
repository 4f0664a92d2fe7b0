#include "model/lora.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/pattern.h"
#include "format/quoted.h"
#include "model/lora_layers.h"
#include "model/lora_names.h"
#include "model/lora_parameters.h"
#include "model/lora_selector.h"

namespace temper {
namespace {

// The override for a module: the first of `patterns` whose key matches one of its names, or patterns.end().
template <class T>
Result<typename std::vector<std::pair<std::string, T>>::const_iterator> Override(
    const std::vector<std::pair<std::string, T>>& patterns, const std::string& setting,
    const std::vector<std::string>& names) {
  for (auto it = patterns.begin(); it != patterns.end(); ++it) {
    TEMPER_ASSIGN_OR_RETURN(const Pattern pattern, PatternOf(setting, "(.*\\.)?(" + it->first + ")"));
    TEMPER_ASSIGN_OR_RETURN(const bool matches, MatchesAny(pattern, names));
    if (matches) return it;
  }
  return patterns.end();
}

constexpr char kRankPattern[] = "rank_pattern", kAlphaPattern[] = "alpha_pattern";

// Sets under which modules the adapters of one module's parameters are stored: each wraps those before it.
void SetStored(std::vector<LoraModule>* targets, const std::set<std::string>& parameters) {
  std::map<std::string, int> wrapped;  // how many adapters of a module come after
  for (auto it = targets->rbegin(); it != targets->rend(); ++it) {
    if (!parameters.contains(it->path)) continue;
    const std::string owner = OwnerOf(it->path);
    it->stored = owner;
    for (int i = wrapped[owner]++; i > 0; --i) it->stored += ".base_layer";
  }
}

// PEFT refuses parameters, too; of an adapted head, logits exist only within the loss.
Status RefuseMagnitudes(const LinearModule& module, const std::string& file) {
  const std::string what = fmt::format(
      "{}: DoRA of {} is not supported, which is {}", file.empty() ? "lora.use_dora" : file + ": use_dora", module.path,
      module.is_head ? "the output head" : "a parameter of its module, not a linear module (PEFT refuses it, too)");
  if (!file.empty()) return Unsupported(fmt::format("{}. {}", what, kMergeWithPeft));
  return InvalidArgument(
      fmt::format("{}: list in lora.target_modules the modules to adapt without it, or remove lora.use_dora", what));
}

}  // namespace

Result<std::vector<LoraModule>> ResolveLora(const std::vector<LinearModule>& modules, const LoraConfig& given,
                                            const std::string& file) {
  Result<LoraConfig> converted = WithParameters(modules, given, file);
  if (!converted.ok()) return converted.status().WithContext(file.empty() ? "lora" : file);
  const LoraConfig& config = *converted;
  TEMPER_ASSIGN_OR_RETURN(LoraSelector selector, LoraSelector::Create(config, file));
  const std::string rank_pattern = SettingCalled(kRankPattern, file),
                    alpha_pattern = SettingCalled(kAlphaPattern, file);
  std::vector<LoraModule> targets;
  std::set<std::string> all, all_parameters, parameters;
  for (const LinearModule& module : modules) {
    (module.is_parameter ? all_parameters : all).insert(module.path);
    TEMPER_ASSIGN_OR_RETURN(const bool selected, selector.Selects(module));
    if (!selected) continue;
    const std::vector<std::string> names = NamesOf(module);
    TEMPER_ASSIGN_OR_RETURN(const auto rank, Override(config.rank_pattern, rank_pattern, names));
    TEMPER_ASSIGN_OR_RETURN(const auto alpha, Override(config.alpha_pattern, alpha_pattern, names));
    LoraModule target{.path = module.path,
                      .older_paths = module.older_paths,
                      .in = module.in,
                      .out = module.out(),
                      .r = rank == config.rank_pattern.end() ? config.r : rank->second,
                      .matrices = module.matrices,
                      .is_head = module.is_head,
                      .transposed = module.layout.transposed,
                      .stacked = module.layout.stacked,
                      .has_magnitudes = config.use_dora,
                      .groups = module.layout.groups};
    if (target.r < 1 || target.r > kMaxLoraRank) {
      return InvalidArgument(fmt::format("{}LoRA rank of {} is {}; it must be from 1 to {}",
                                         file.empty() ? "" : file + ": ", target.path, target.r, kMaxLoraRank));
    }
    const double r = static_cast<double>(target.r);
    const double numerator = alpha == config.alpha_pattern.end() ? config.alpha : alpha->second;
    target.scale = numerator / (config.use_rslora ? std::sqrt(r) : r);
    for (size_t i = 0; i < module.weights.size(); ++i) {
      const std::string& weight = module.weights[i];
      const bool alone = module.weights.size() == 1;
      const std::string part = alone ? "" : weight.substr(weight.rfind('/'));
      target.parts.push_back({weight, LoraBName(module.path) + part, module.rows[i]});
      if (!target.has_magnitudes) continue;
      target.parts.back().magnitude = LoraMagnitudeName(module.path) + part;
      target.parts.back().squares = LoraSquaresName(module.path) + part;
    }
    if (module.is_parameter) parameters.insert(module.path);
    if (module.is_parameter && config.dropout != 0) {
      return InvalidArgument(fmt::format(
          "{}: {} is {}, but {} is a parameter, whose adapters take no dropout, in PEFT either: set it to 0, or name "
          "target_modules without {}",
          file.empty() ? "lora" : file, file.empty() ? "dropout" : "lora_dropout", config.dropout,
          ShortName(module.path), module.module_names.empty() ? ShortName(module.path) : module.module_names.front()));
    }
    if (config.use_dora && (module.is_head || module.is_parameter)) {
      return RefuseMagnitudes(module, file);
    }
    targets.push_back(std::move(target));
  }
  SetStored(&targets, parameters);
  const auto refuse = [&](const char* setting, const std::string& what) {
    std::string text = fmt::format("{}{}; this model has {}", SettingCalled(setting, file), what, NamesInMessage(all));
    if (!all_parameters.empty()) text += ", and the parameters " + NamesInMessage(all_parameters);
    if (file.empty()) return InvalidArgument(text);
    return Unsupported(text + ". " + kMergeWithPeft);
  };
  // In PEFT one name that is a module's is enough; the adapter's tensors show whether something is missing then.
  if (const auto unmatched = selector.Unmatched(); !unmatched.empty() && (file.empty() || targets.empty())) {
    const auto& [setting, name] = unmatched.front();
    const bool of_modules = std::string_view(setting) == "target_modules";
    const bool is_parameter = std::any_of(all_parameters.begin(), all_parameters.end(),
                                          [&, &called = name](const std::string& p) { return NameMatches(p, called); });
    return refuse(setting,
                  fmt::format(": no {} is called {}{}", of_modules ? "linear module" : "such parameter", Quoted(name),
                              is_parameter ? ", which is a parameter: name it in "
                                             "target_parameters"
                                           : ""));
  }
  if (targets.empty()) {
    return refuse("target_modules", fmt::format(" selects no linear module{}",
                                                config.layers_to_transform.empty() ? "" : " of layers_to_transform"));
  }
  return targets;
}

namespace {

// Adds a line for each of `patterns` that applies to none of `targets`.
template <class T>
Status AddIdle(const std::vector<std::pair<std::string, T>>& patterns, const std::string& setting,
               const std::vector<LoraModule>& targets, std::vector<std::string>* idle) {
  std::set<std::string> decides, modules;
  for (const LoraModule& t : targets) {
    modules.insert(t.path);
    TEMPER_ASSIGN_OR_RETURN(const auto it, Override(patterns, setting, NamesOf(t)));
    if (it != patterns.end()) decides.insert(it->first);
  }
  for (const auto& [key, value] : patterns) {
    if (decides.contains(key)) continue;
    idle->push_back(
        fmt::format("{}: '{}' has no effect: it is the first match of no module with an adapter; these have one: {}",
                    setting, key, NamesInMessage(modules)));
  }
  return OkStatus();
}

// Adds a line for the layers that no module with an adapter is of.
Status AddIdleLayers(const std::vector<LoraModule>& targets, const LoraConfig& config, std::vector<std::string>* idle) {
  TEMPER_ASSIGN_OR_RETURN(const LoraLayers layers, LoraLayers::Create(config));
  std::set<int64_t> have;
  for (const LoraModule& t : targets) {
    for (const std::string& name : NamesOf(t)) {
      TEMPER_ASSIGN_OR_RETURN(const std::optional<int64_t> layer, layers.LayerOf(name));
      if (layer) have.insert(*layer);
    }
  }
  std::vector<int64_t> missing;
  for (const int64_t layer : config.layers_to_transform) {
    if (!have.contains(layer)) missing.push_back(layer);
  }
  if (!missing.empty()) {
    idle->push_back(fmt::format(
        "lora.layers_to_transform: {}{} no effect: no module there gets an adapter; "
        "the first layer is 0",
        missing.front(), missing.size() == 1 ? " has" : fmt::format(" and {} more have", missing.size() - 1)));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string>> IdleLoraSettings(const std::vector<LinearModule>& modules, const LoraConfig& config) {
  std::vector<std::string> idle;
  TEMPER_ASSIGN_OR_RETURN(const auto targets, ResolveLora(modules, config));
  TEMPER_RETURN_IF_ERROR(AddIdle(config.rank_pattern, SettingCalled(kRankPattern, ""), targets, &idle));
  TEMPER_RETURN_IF_ERROR(AddIdle(config.alpha_pattern, SettingCalled(kAlphaPattern, ""), targets, &idle));
  LoraConfig whole = config;
  whole.exclude_modules = std::vector<std::string>();
  TEMPER_ASSIGN_OR_RETURN(const auto candidates, ResolveLora(modules, whole));
  std::set<std::string> paths;
  bool parameters = false;
  for (const LoraModule& t : candidates) {
    parameters = parameters || !t.stored.empty();
    for (std::string& name : NamesOf(t)) {
      if (t.stored.empty()) paths.insert(std::move(name));
    }
  }
  if (parameters && !config.layers_to_transform.empty()) {
    idle.push_back(
        "lora.layers_to_transform: experts and routers of all layers get adapters: in PEFT, too, it chooses "
        "among linear modules alone");
  }
  if (LoraConfig without = config; !config.parameter_names().empty()) {
    without.target_parameters = std::vector<std::string>();
    const auto same = ResolveLora(modules, without);
    if (same.ok() && same->size() == targets.size()) {
      idle.push_back(
          "lora.target_parameters has no effect: target_modules means these parameters, too (all-linear is "
          "the default; [] means no modules)");
    }
  }
  const auto excludes_nothing = [&](const std::string& what) {
    return fmt::format("lora.exclude_modules: {} excludes nothing; without it, these modules get an adapter: {}{}",
                       what, NamesInMessage(paths),
                       parameters ? " (experts and routers are not excluded by names: leave "
                                    "theirs out of target_modules)"
                                  : "");
  };
  for (const std::string& name : config.exclude_names()) {
    const auto has_name = [&](const std::string& path) { return NameMatches(path, name); };
    if (std::none_of(paths.begin(), paths.end(), has_name)) idle.push_back(excludes_nothing("'" + name + "'"));
  }
  if (!config.exclude_regex().empty() && candidates.size() == targets.size()) {
    idle.push_back(excludes_nothing("the expression '" + config.exclude_regex() + "' (it must match a whole path)"));
  }
  TEMPER_RETURN_IF_ERROR(AddIdleLayers(targets, config, &idle));
  return idle;
}

Result<LoraConfig> NamedByPaths(const std::vector<LinearModule>& modules, const LoraConfig& given) {
  TEMPER_ASSIGN_OR_RETURN(const LoraConfig config, WithParameters(modules, given, ""));
  std::vector<LinearModule> today = modules;
  for (LinearModule& module : today) module.older_paths.clear();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LoraModule> targets, ResolveLora(modules, config));
  const auto same = [](const LoraModule& a, const LoraModule& b) {
    return a.path == b.path && a.r == b.r && a.scale == b.scale;
  };
  const auto as_written = ResolveLora(today, config);
  if (as_written.ok() && std::equal(as_written->begin(), as_written->end(), targets.begin(), targets.end(), same)) {
    return config;
  }
  LoraConfig named = config;
  named.exclude_modules = std::vector<std::string>();
  named.layers_to_transform.clear();
  named.layers_pattern = std::vector<std::string>();
  named.rank_pattern.clear();
  named.alpha_pattern.clear();
  std::vector<std::string> paths, parameters;
  for (const LoraModule& t : targets) {
    (t.stored.empty() ? paths : parameters).push_back(t.path);
    TEMPER_ASSIGN_OR_RETURN(const auto rank, Override(config.rank_pattern, kRankPattern, NamesOf(t)));
    TEMPER_ASSIGN_OR_RETURN(const auto alpha, Override(config.alpha_pattern, kAlphaPattern, NamesOf(t)));
    if (rank != config.rank_pattern.end()) named.rank_pattern.emplace_back(t.path, rank->second);
    if (alpha != config.alpha_pattern.end()) named.alpha_pattern.emplace_back(t.path, alpha->second);
  }
  named.target_modules = std::move(paths);
  named.target_parameters = std::move(parameters);
  return named;
}

}  // namespace temper
