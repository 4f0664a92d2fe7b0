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
#include "graph/ops/loss_operands.h"
#include "graph/rule.h"
#include "model/forward.h"
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

// What target_parameters calls a parameter of every layer: "gate.weight", "down_proj".
std::string ShortName(const LinearModule& parameter) {
  const std::string& path = parameter.path;
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
        matched_.insert(name);
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
    // Trained in full instead: a module that a name of modules_to_save is, or that lies inside one.
    const auto is_saved = [&](const std::string& name) {
      return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
        return ("." + path + ".").find("." + name + ".") != std::string::npos;
      });
    };
    if (std::any_of(saved_.begin(), saved_.end(), is_saved)) return false;
    const std::vector<std::string>& excluded_names = config_.exclude_names();
    if (!selected || std::any_of(excluded_names.begin(), excluded_names.end(), is_called)) return false;
    if (!excluded_) return true;
    TEMPER_ASSIGN_OR_RETURN(const bool excluded, MatchesAny(*excluded_, paths));
    return !excluded;
  }

  std::vector<std::string> Unmatched() const {
    std::vector<std::string> names;
    for (const std::vector<std::string>* const all : {&config_.target_names(), &parameters_}) {
      for (const std::string& n : *all) {
        if (!matched_.contains(n)) names.push_back(n);
      }
    }
    return names;
  }

 private:
  explicit Selector(const LoraConfig& config)
      : config_(config), saved_(config.saved_names()), parameters_(config.parameter_names()) {}
  const LoraConfig& config_;
  const std::vector<std::string> saved_, parameters_;
  std::optional<Pattern> targets_, excluded_;
  std::optional<LoraLayers> layers_;
  std::set<std::string> matched_;
};

std::string LastComponents(const std::set<std::string>& paths) {
  std::set<std::string> names;
  for (const std::string& p : paths) names.insert(p.substr(p.rfind('.') + 1));
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

}  // namespace

namespace {

// The names that target_modules, a text, has for the modules of a model, as PEFT resolves it for classes whose modules
// have become parameters: the last components of all linear modules and the modules that were, or of those that the
// expression matches.
Result<std::set<std::string>> NamesByText(const std::vector<LinearModule>& modules, const LoraConfig& config) {
  std::set<std::string> names;
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  if (config.all_linear()) {
    for (const LinearModule& m : modules) {
      if (m.is_parameter) {
        names.insert(m.module_names.begin(), m.module_names.end());
      } else if (!m.is_head) {
        names.insert(last(m.path));
      }
    }
    return names;
  }
  TEMPER_ASSIGN_OR_RETURN(const Pattern pattern, CompileOf("lora.target_modules", config.target_regex()));
  for (const LinearModule& m : modules) {
    std::vector<std::string> keys = NamesOf(m);
    if (m.is_parameter) {
      keys.push_back(OwnerOf(m.path));
      for (const std::string& name : m.module_names) keys.push_back(OwnerOf(m.path) + "." + name);
    }
    for (const std::string& key : keys) {
      TEMPER_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(key));
      if (matches) names.insert(last(key));
    }
  }
  return names;
}

}  // namespace

Result<LoraConfig> WithParameters(const std::vector<LinearModule>& modules, const LoraConfig& given) {
  std::map<std::string, const LinearModule*> parameters;  // by the modules that they were
  for (const LinearModule& m : modules) {
    for (const std::string& name : m.module_names) parameters.emplace(name, &m);
  }
  if (parameters.empty()) return given;
  LoraConfig config = given;
  std::set<std::string> names(given.target_names().begin(), given.target_names().end());
  if (given.all_linear() || !given.target_regex().empty()) {
    TEMPER_ASSIGN_OR_RETURN(names, NamesByText(modules, given));
    if (names.empty()) return given;
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
  if (named.empty()) return given;
  for (const auto& [parameter, found] : named) {
    const std::string name = ShortName(*parameter);
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

Result<std::vector<LoraModule>> ResolveLora(const std::vector<LinearModule>& modules, const LoraConfig& given,
                                            const std::string& file) {
  Result<LoraConfig> converted = WithParameters(modules, given);
  if (!converted.ok()) return converted.status().WithContext(file.empty() ? "lora" : file);
  const LoraConfig& config = *converted;
  TEMPER_ASSIGN_OR_RETURN(Selector selector, Selector::Create(config, file));
  const std::string rank_pattern = Called(kRankPattern, file), alpha_pattern = Called(kAlphaPattern, file);
  std::vector<LoraModule> targets;
  std::set<std::string> all, parameters;
  for (const LinearModule& module : modules) {
    all.insert(module.is_parameter ? ShortName(module) : module.path);
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
      target.parts.push_back(
          {weight, LoraBName(module.path) + (alone ? "" : weight.substr(weight.rfind('/'))), module.rows[i]});
    }
    if (module.is_parameter) parameters.insert(module.path);
    if (module.is_parameter && config.dropout != 0) {
      return InvalidArgument(fmt::format(
          "{}: {} is {}, but {} is a parameter, whose adapters take no dropout, in PEFT either: set it to 0, or name "
          "target_modules without {}",
          file.empty() ? "lora" : file, file.empty() ? "dropout" : "lora_dropout", config.dropout, ShortName(module),
          module.module_names.empty() ? ShortName(module) : module.module_names.front()));
    }
    targets.push_back(std::move(target));
  }
  SetStored(&targets, parameters);
  const auto refuse = [&](const std::string& what) {
    const std::string text =
        fmt::format("{}{}; this model has {}", Called("target_modules", file), what, LastComponents(all));
    if (file.empty()) return InvalidArgument(text);
    return Unsupported(text + ". " + kMergeWithPeft);
  };
  // In PEFT one name that is a module's is enough; the adapter's tensors show whether something is missing then.
  if (const auto unmatched = selector.Unmatched(); !unmatched.empty() && (file.empty() || targets.empty())) {
    return refuse(fmt::format(": no linear module{} is called {}",
                              config.parameter_names().empty() ? "" : " or parameter", Quoted(unmatched.front())));
  }
  if (targets.empty()) {
    return refuse(fmt::format(" selects no linear module{}",
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
                    setting, key, LastComponents(modules)));
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
  for (const LoraModule& t : candidates) {
    for (std::string& name : NamesOf(t)) paths.insert(std::move(name));
  }
  const auto excludes_nothing = [&](const std::string& what) {
    return fmt::format("lora.exclude_modules: {} excludes nothing; without it, these modules get an adapter: {}", what,
                       LastComponents(paths));
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
  TEMPER_ASSIGN_OR_RETURN(const LoraConfig config, WithParameters(modules, given));
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

namespace {

// Adds the branches node by node.
class LoraRewriter {
 public:
  LoraRewriter(Graph forward, const std::vector<LoraModule>& targets, double dropout)
      : nodes_(std::move(forward.nodes())), graph_(std::move(forward)), dropout_(dropout) {
    for (const LoraModule& t : targets) {
      for (const LoraModule::Part& part : t.parts) targets_[part.weight] = {&t, &part};
    }
    graph_.nodes().clear();
    graph_.nodes().reserve(nodes_.size() + 3 * targets.size());  // dropout, A, B; of stacks two more
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (graph_.value(id).name == kRngInput) rng_ = id;  // the model has dropout, too
    }
  }

  Graph Run() {
    for (Node& node : nodes_) {
      const bool product = node.op == Op::kLinear || node.op == Op::kGroupedLinear || IsLoss(node.op);
      const auto target = product ? targets_.find(graph_.value(node.inputs[1]).name) : targets_.end();
      if (target == targets_.end()) {
        graph_.AddNode(std::move(node));
      } else if (node.op == Op::kGroupedLinear) {
        AddToGrouped(node, target->second);
      } else if (node.op != Op::kLinear) {
        AddToHead(node, target->second);
      } else {
        AddToLinear(node, target->second);
      }
    }
    return std::move(graph_);
  }

 private:
  // The adapter of a product: its module, and the part of the module that is the product's weight.
  struct Target {
    const LoraModule* module;
    const LoraModule::Part* part;
  };

  ValueId Adapter(const std::string& name, Shape shape, DimLabels labels, DType dtype) {
    return graph_.AddValue({.name = name,
                            .type = {dtype, shape},
                            .role = Role::kAdapter,
                            .trainable = true,
                            .decays = true,
                            .labels = labels});
  }
  // The labels of the rows and columns of the product's weight.
  DimLabels LabelsOf(const Node& node) const { return graph_.value(node.inputs[1]).labels; }

  // B of the product.
  ValueId Up(const Node& node, const Target& t, ValueId down) {
    const DimLabels labels = LabelsOf(node);
    return Adapter(t.part->b, {t.part->rows, t.module->r},
                   labels.empty() ? labels : DimLabels{labels[0], DimLabel::kRank}, graph_.value(down).type.dtype);
  }

  ValueId Emit(const Node& like, Op op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name) {
    Result<Types> types = InferTypes(op, TypesOf(graph_, inputs), attributes);
    TEMPER_CHECK(types.ok()) << types.status().message();
    const ValueId out = graph_.AddValue({.name = name, .type = (*types)[0]});
    graph_.AddNode({.op = op,
                    .inputs = std::move(inputs),
                    .outputs = {out},
                    .attributes = std::move(attributes),
                    .block = like.block,
                    .phase = like.phase,
                    .rng_name = RuleOf(op).random ? name : ""});
    return out;
  }

  // scale * dropout(x) A^T, [T, R]; made once per module and x.
  ValueId Down(const Node& node, const LoraModule& m, double scale) {
    ValueId x = node.inputs[0];
    const auto [made, fresh] = down_.try_emplace({&m, x}, kNoValue);
    if (!fresh) return made->second;
    const DType dtype = graph_.value(x).type.dtype;
    if (dropout_ > 0) x = Emit(node, Op::kDropout, {x, Rng()}, {{"p", dropout_}}, m.path + ".lora_dropout");
    Attributes attributes = {{"acc", int64_t{0}}, {"bias", int64_t{0}}};
    if (scale != 1.0) attributes.Set("scale", scale);
    const DimLabels labels = LabelsOf(node);
    const ValueId a =
        Adapter(LoraAName(m.path), {m.r, m.in}, labels.empty() ? labels : DimLabels{DimLabel::kRank, labels[1]}, dtype);
    return made->second = Emit(node, Op::kLinear, {x, a}, attributes, m.path + ".lora_A");
  }

  void AddToLinear(const Node& node, const Target& t) {
    Node base = node;
    const ValueId y = node.outputs[0];
    Value base_value = graph_.value(y);
    base_value.name += ".base";
    base_value.role = Role::kActivation;
    base.outputs = {graph_.AddValue(base_value)};
    graph_.AddNode(base);
    const ValueId down = Down(node, *t.module, 1.0);
    const ValueId b = Up(node, t, down);
    Attributes attributes = {{"acc", int64_t{1}}, {"bias", int64_t{0}}, {"scale", t.module->scale}};
    if (node.attributes.Has("out")) attributes.Set("out", node.attributes.String("out"));
    graph_.AddNode({.op = Op::kLinear,
                    .inputs = {down, b, base.outputs[0]},
                    .outputs = {y},
                    .attributes = std::move(attributes),
                    .block = node.block,
                    .phase = node.phase});
  }

  // The matrices that an adapter's matrix holds for a stack.
  ValueId Unstacked(const Node& like, ValueId w, int64_t matrices, bool interleaved) {
    Attributes attributes = {{"matrices", matrices}};
    if (interleaved) attributes.Set("interleaved", int64_t{1});
    return Emit(like, Op::kUnstack, {w}, std::move(attributes), graph_.value(w).name + ".unstacked");
  }

  // Both products go by the rows' experts, as the base's does.
  void AddToGrouped(const Node& node, const Target& t) {
    TEMPER_CHECK(!node.attributes.Flag("acc")) << "a product of experts that is added to another";
    const LoraModule& m = *t.module;
    const ValueId x = node.inputs[0], expert = node.inputs[2], y = node.outputs[0];
    Node base = node;
    Value base_value = graph_.value(y);
    base_value.name += ".base";
    base.outputs = {graph_.AddValue(base_value)};
    graph_.AddNode(base);
    const DimLabels labels = LabelsOf(node);
    const auto labelled = [&](DimLabel rows, DimLabel columns) {
      return labels.empty() ? labels : DimLabels{rows, columns};
    };
    const DType dtype = graph_.value(x).type.dtype;
    const int64_t active = node.attributes.Int("active");
    const auto [made, fresh] = down_.try_emplace({&m, x}, kNoValue);
    if (fresh) {
      const ValueId a = Adapter(LoraAName(m.path), {m.ranks(), m.in}, labelled(DimLabel::kRank, labels[2]), dtype);
      made->second = Emit(node, Op::kGroupedLinear, {x, Unstacked(node, a, m.matrices, false), expert},
                          {{"acc", int64_t{0}}, {"active", active}}, m.path + ".lora_A");
    }
    const ValueId down = made->second;
    const ValueId b = Adapter(t.part->b, {t.part->rows, m.ranks()}, labelled(labels[1], DimLabel::kRank), dtype);
    const ValueId b_EOR = Unstacked(node, b, m.matrices, true);
    graph_.AddNode({.op = Op::kGroupedLinear,
                    .inputs = {down, b_EOR, expert, base.outputs[0]},
                    .outputs = {y},
                    .attributes = {{"acc", int64_t{1}}, {"active", active}, {"scale", m.scale}},
                    .block = node.block,
                    .phase = node.phase});
  }

  void AddToHead(const Node& node, const Target& t) {
    Node head = node;
    const ValueId down = Down(node, *t.module, t.module->scale);
    head.inputs.insert(head.inputs.begin() + LossOperands::kTarget + 1, {down, Up(node, t, down)});
    head.attributes.Set("pair2", int64_t{1});
    graph_.AddNode(std::move(head));
  }

  ValueId Rng() {
    if (rng_ == kNoValue) {
      rng_ = graph_.AddValue({.name = kRngInput, .type = {DType::kI64, {kNumRngWords}}, .role = Role::kInput});
    }
    return rng_;
  }

  std::vector<Node> nodes_;  // of the given graph; nodes without a branch are moved out
  Graph graph_;
  const double dropout_;
  std::map<std::string, Target> targets_;                          // by the weight's name
  std::map<std::pair<const LoraModule*, ValueId>, ValueId> down_;  // by module and x
  ValueId rng_ = kNoValue;
};

}  // namespace

Graph AddLora(Graph forward, const std::vector<LoraModule>& targets, double dropout) {
  return LoraRewriter(std::move(forward), targets, dropout).Run();
}

}  // namespace temper
