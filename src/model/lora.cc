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

namespace temper {
namespace {

constexpr int64_t kMaxRank = 1 << 16;  // wider than any model; keeps products of sizes from overflowing

bool NameMatches(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

// What PEFT calls a module: its path, and those of earlier versions of its class.
template <class Module>
std::vector<std::string> NamesOf(const Module& module) {
  std::vector<std::string> names = {module.path};
  names.insert(names.end(), module.older_paths.begin(), module.older_paths.end());
  return names;
}

Result<Pattern> CompileOf(const std::string& setting, const std::string& expression) {
  Result<Pattern> pattern = Pattern::Compile(expression);
  if (!pattern.ok()) return pattern.status().WithContext(setting);
  return pattern;
}

// A module answers to any of its names.
Result<bool> MatchesAny(const Pattern& pattern, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    TEMPER_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(name));
    if (matches) return true;
  }
  return false;
}

// The override for a module: the first of `patterns` whose key matches one of its names, or patterns.end().
template <class T>
Result<typename std::vector<std::pair<std::string, T>>::const_iterator> Override(
    const std::vector<std::pair<std::string, T>>& patterns, const std::string& setting,
    const std::vector<std::string>& names) {
  for (auto it = patterns.begin(); it != patterns.end(); ++it) {
    TEMPER_ASSIGN_OR_RETURN(const Pattern pattern, CompileOf(setting, "(.*\\.)?(" + it->first + ")"));
    TEMPER_ASSIGN_OR_RETURN(const bool matches, MatchesAny(pattern, names));
    if (matches) return it;
  }
  return patterns.end();
}

constexpr char kRankPattern[] = "rank_pattern", kAlphaPattern[] = "alpha_pattern";

// What messages call a setting: an option of the run, or a key of the adapter's file.
std::string Called(const char* key, const std::string& file) {
  return file.empty() ? std::string("lora.") + key : fmt::format("{}: {}", file, key);
}

// What target_parameters calls a parameter of every layer, target_modules a module: "gate.weight", "down_proj".
std::string ShortName(const std::string& path) {
  size_t dot = path.rfind('.');
  if (path.substr(dot + 1) == "weight") dot = path.rfind('.', dot - 1);
  return path.substr(dot + 1);
}
// The module that has a parameter.
std::string OwnerOf(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// Decides which module paths a configuration selects, and records which listed names select nothing.
class Selector {
 public:
  static Result<Selector> Create(const LoraConfig& config, const std::string& file) {
    Selector selector(config);
    Result<LoraLayers> layers = LoraLayers::Create(config);
    if (!layers.ok()) return layers.status().WithContext(file.empty() ? "lora" : file);
    selector.layers_ = std::move(*layers);
    if (!config.target_regex().empty()) {
      TEMPER_ASSIGN_OR_RETURN(selector.targets_, CompileOf(Called("target_modules", file), config.target_regex()));
    }
    if (!config.exclude_regex().empty()) {
      TEMPER_ASSIGN_OR_RETURN(selector.excluded_, CompileOf(Called("exclude_modules", file), config.exclude_regex()));
    }
    return selector;
  }

  Result<bool> Selects(const LinearModule& module) {
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

  // Whether a module of these names gets no adapter although it is named.
  Result<bool> LeavesOut(const std::vector<std::string>& paths) const {
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
  // Whether target_modules, an expression, means a module of that name.
  Result<bool> Matches(const std::string& key) const {
    TEMPER_ASSIGN_OR_RETURN(const bool matches, targets_->Matches(key));
    if (!matches) return false;
    TEMPER_ASSIGN_OR_RETURN(const bool left_out, LeavesOut({key}));
    return !left_out;
  }

  // The names that select nothing, and what lists them.
  struct Idle {
    const char* setting;
    std::string name;
  };
  std::vector<Idle> Unmatched() const {
    std::vector<Idle> idle;
    for (const std::string& n : config_.target_names()) {
      if (!matched_.contains(n)) idle.push_back({"target_modules", n});
    }
    for (const std::string& n : parameters_) {
      if (!matched_parameters_.contains(n)) idle.push_back({"target_parameters", n});
    }
    return idle;
  }

 private:
  explicit Selector(const LoraConfig& config)
      : config_(config), saved_(config.saved_names()), parameters_(config.parameter_names()) {}
  const LoraConfig& config_;
  const std::vector<std::string> saved_, parameters_;
  std::optional<Pattern> targets_, excluded_;
  std::optional<LoraLayers> layers_;
  std::set<std::string> matched_, matched_parameters_;
};

// The names by which a message lists modules: the last components of their paths, and of parameters also "weight".
std::string NamesInMessage(const std::set<std::string>& paths) {
  std::set<std::string> names;
  for (const std::string& p : paths) names.insert(ShortName(p));
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

}  // namespace

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
  TEMPER_ASSIGN_OR_RETURN(const Selector selector, Selector::Create(config, file));
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
      TEMPER_ASSIGN_OR_RETURN(const Selector selector, Selector::Create(given, file));
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
  if (!named.empty() && (given.r < 1 || given.r > kMaxRank)) {
    return InvalidArgument(fmt::format("LoRA rank {}; it must be from 1 to {}", given.r, kMaxRank));
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

namespace {

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

}  // namespace

namespace {

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
  TEMPER_ASSIGN_OR_RETURN(Selector selector, Selector::Create(config, file));
  const std::string rank_pattern = Called(kRankPattern, file), alpha_pattern = Called(kAlphaPattern, file);
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
    if (target.r < 1 || target.r > kMaxRank) {
      return InvalidArgument(fmt::format("{}LoRA rank of {} is {}; it must be from 1 to {}",
                                         file.empty() ? "" : file + ": ", target.path, target.r, kMaxRank));
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
    std::string text = fmt::format("{}{}; this model has {}", Called(setting, file), what, NamesInMessage(all));
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
  TEMPER_RETURN_IF_ERROR(AddIdle(config.rank_pattern, Called(kRankPattern, ""), targets, &idle));
  TEMPER_RETURN_IF_ERROR(AddIdle(config.alpha_pattern, Called(kAlphaPattern, ""), targets, &idle));
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
