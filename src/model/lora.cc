#include "model/lora.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/pattern.h"
#include "graph/ops/loss_operands.h"
#include "graph/rule.h"
#include "model/forward.h"

namespace temper {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";
constexpr char kHeadModule[] = "lm_head";
constexpr int64_t kMaxRank = 1 << 16;  // wider than any model: more is a mistake, and products of sizes could overflow

// The module whose product node `n` computes, as (path, weight): the weight's name without ".weight". A product with an
// embedding table is the tied head.
struct LinearModule {
  std::string path;
  ValueId weight;
};
std::optional<LinearModule> ModuleOf(const Graph& graph, const Node& n) {
  if (n.op != Op::kLinear && !IsLoss(n.op)) return std::nullopt;
  const Value& w = graph.value(n.inputs[1]);
  if (w.role != Role::kWeight || !w.name.ends_with(kWeightSuffix)) return std::nullopt;
  std::string path = w.name.substr(0, w.name.size() - kWeightSuffix.size());
  if (path.ends_with("embed_tokens")) path = kHeadModule;
  return LinearModule{path, n.inputs[1]};
}

bool NameMatches(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

bool AnyNameMatches(const std::string& path, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return NameMatches(path, n); });
}

Result<Pattern> CompileOf(const char* setting, const std::string& expression) {
  Result<Pattern> pattern = Pattern::Compile(expression);
  if (!pattern.ok()) return pattern.status().WithContext(setting);
  return pattern;
}

// The override for `path`: the first of `patterns` whose key matches it, or their end.
template <class T>
Result<typename std::vector<std::pair<std::string, T>>::const_iterator> Override(
    const std::vector<std::pair<std::string, T>>& patterns, const char* setting, const std::string& path) {
  for (auto it = patterns.begin(); it != patterns.end(); ++it) {
    TEMPER_ASSIGN_OR_RETURN(const Pattern pattern, CompileOf(setting, "(.*\\.)?(" + it->first + ")"));
    TEMPER_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(path));
    if (matches) return it;
  }
  return patterns.end();
}

constexpr char kRankPattern[] = "lora.rank_pattern", kAlphaPattern[] = "lora.alpha_pattern";

// Decides which module paths a spec selects, and which listed names never selected anything.
class Selector {
 public:
  static Result<Selector> Create(const LoraSpec& spec) {
    Selector selector(spec);
    if (!spec.target_regex.empty()) {
      TEMPER_ASSIGN_OR_RETURN(selector.targets_, CompileOf("lora.target_modules", spec.target_regex));
    }
    if (!spec.exclude_regex.empty()) {
      TEMPER_ASSIGN_OR_RETURN(selector.excluded_, CompileOf("lora.exclude_modules", spec.exclude_regex));
    }
    return selector;
  }

  Result<bool> Selects(const std::string& path) {
    bool selected = false;
    if (targets_) {
      TEMPER_ASSIGN_OR_RETURN(selected, targets_->Matches(path));
    } else if (spec_.target_modules.empty()) {
      selected = spec_.all_linear && path != kHeadModule;
    } else {
      for (const std::string& name : spec_.target_modules) {
        if (!NameMatches(path, name)) continue;
        matched_.insert(name);
        selected = true;
      }
    }
    if (!selected || AnyNameMatches(path, spec_.exclude_modules)) return false;
    if (!excluded_) return true;
    TEMPER_ASSIGN_OR_RETURN(const bool excluded, excluded_->Matches(path));
    return !excluded;
  }

  std::vector<std::string> Unmatched() const {
    std::vector<std::string> names;
    for (const std::string& n : spec_.target_modules) {
      if (!matched_.contains(n)) names.push_back(n);
    }
    return names;
  }

 private:
  explicit Selector(const LoraSpec& spec) : spec_(spec) {}
  const LoraSpec& spec_;
  std::optional<Pattern> targets_, excluded_;
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

std::string LoraAName(const std::string& module) {
  return "base_model.model." + module + ".lora_A.weight";
}
std::string LoraBName(const std::string& module) {
  return "base_model.model." + module + ".lora_B.weight";
}

Result<std::vector<LoraTarget>> ResolveLoraTargets(const Graph& forward, const LoraSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(Selector selector, Selector::Create(spec));
  std::vector<LoraTarget> targets;
  std::set<std::string> all;
  for (const Node& node : forward.nodes()) {
    const auto module = ModuleOf(forward, node);
    if (!module) continue;
    all.insert(module->path);
    TEMPER_ASSIGN_OR_RETURN(const bool selected, selector.Selects(module->path));
    if (!selected) continue;
    TEMPER_ASSIGN_OR_RETURN(const auto rank, Override(spec.rank_pattern, kRankPattern, module->path));
    TEMPER_ASSIGN_OR_RETURN(const auto alpha, Override(spec.alpha_pattern, kAlphaPattern, module->path));
    const Shape& w = forward.value(module->weight).type.shape;
    LoraTarget target{
        .module = module->path, .in = w[1], .out = w[0], .r = rank == spec.rank_pattern.end() ? spec.r : rank->second};
    if (target.r < 1 || target.r > kMaxRank) {
      return InvalidArgument(
          fmt::format("LoRA rank of {} is {}; it must be from 1 to {}", target.module, target.r, kMaxRank));
    }
    const double r = static_cast<double>(target.r);
    const double numerator = alpha == spec.alpha_pattern.end() ? spec.alpha : alpha->second;
    target.scale = numerator / (spec.rslora ? std::sqrt(r) : r);
    targets.push_back(target);
  }
  if (const auto unmatched = selector.Unmatched(); !unmatched.empty()) {
    return InvalidArgument(fmt::format("lora.target_modules: no linear module is called '{}'; this model has {}",
                                       unmatched.front(), LastComponents(all)));
  }
  if (targets.empty()) {
    return InvalidArgument(
        fmt::format("lora.target_modules selects no linear module; this model has {}", LastComponents(all)));
  }
  return targets;
}

namespace {

// Adds a line for each of `patterns` that decides for none of `targets`.
template <class T>
Status AddIdle(const std::vector<std::pair<std::string, T>>& patterns, const char* setting,
               const std::vector<LoraTarget>& targets, std::vector<std::string>* idle) {
  std::set<std::string> decides, modules;
  for (const LoraTarget& t : targets) {
    modules.insert(t.module);
    TEMPER_ASSIGN_OR_RETURN(const auto it, Override(patterns, setting, t.module));
    if (it != patterns.end()) decides.insert(it->first);
  }
  for (const auto& [key, value] : patterns) {
    if (decides.contains(key)) continue;
    idle->push_back(fmt::format("{}: '{}' changes nothing: no module that gets an adapter is left to it; these do: {}",
                                setting, key, LastComponents(modules)));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string>> IdleLoraSettings(const Graph& forward, const LoraSpec& spec) {
  std::vector<std::string> idle;
  TEMPER_ASSIGN_OR_RETURN(const auto targets, ResolveLoraTargets(forward, spec));
  TEMPER_RETURN_IF_ERROR(AddIdle(spec.rank_pattern, kRankPattern, targets, &idle));
  TEMPER_RETURN_IF_ERROR(AddIdle(spec.alpha_pattern, kAlphaPattern, targets, &idle));
  LoraSpec whole = spec;
  whole.exclude_modules.clear();
  whole.exclude_regex.clear();
  TEMPER_ASSIGN_OR_RETURN(const auto candidates, ResolveLoraTargets(forward, whole));
  std::set<std::string> modules;
  for (const LoraTarget& t : candidates) modules.insert(t.module);
  const auto excludes_nothing = [&](const std::string& what) {
    return fmt::format("lora.exclude_modules: {} leaves nothing out; without it these modules get an adapter: {}", what,
                       LastComponents(modules));
  };
  for (const std::string& name : spec.exclude_modules) {
    const auto has_name = [&](const std::string& path) { return NameMatches(path, name); };
    if (std::none_of(modules.begin(), modules.end(), has_name)) idle.push_back(excludes_nothing("'" + name + "'"));
  }
  if (!spec.exclude_regex.empty() && spec.exclude_modules.empty() && candidates.size() == targets.size()) {
    idle.push_back(excludes_nothing("the expression '" + spec.exclude_regex + "' (it is held against whole paths)"));
  }
  return idle;
}

namespace {

// Adds the branches node by node.
class LoraRewriter {
 public:
  LoraRewriter(Graph forward, const std::vector<LoraTarget>& targets, double dropout)
      : nodes_(std::move(forward.nodes())), graph_(std::move(forward)), dropout_(dropout) {
    for (const LoraTarget& t : targets) targets_[t.module] = &t;
    graph_.nodes().clear();
    graph_.nodes().reserve(nodes_.size() + 3 * targets.size());  // dropout, A, B
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (graph_.value(id).name == kRngInput) rng_ = id;  // the model draws, too
    }
  }

  Graph Run() {
    for (Node& node : nodes_) {
      const auto module = ModuleOf(graph_, node);
      const auto target = module ? targets_.find(module->path) : targets_.end();
      if (target == targets_.end()) {
        graph_.AddNode(std::move(node));
      } else if (node.op != Op::kLinear) {
        AddToHead(node, *target->second);
      } else {
        AddToLinear(node, *target->second);
      }
    }
    return std::move(graph_);
  }

 private:
  ValueId Adapter(const std::string& name, Shape shape, DType dtype) {
    const ValueId id =
        graph_.AddValue({.name = name, .type = {dtype, shape}, .role = Role::kAdapter, .trainable = true});
    return id;
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

  // scale * dropout(x) A^T, [T, R].
  ValueId Down(const Node& node, const LoraTarget& t, double scale) {
    ValueId x = node.inputs[0];
    const DType dtype = graph_.value(x).type.dtype;
    if (dropout_ > 0) {
      x = Emit(node, Op::kDropout, {x, Rng()}, {{"p", dropout_}}, t.module + ".lora_dropout");
    }
    Attributes attributes = {{"acc", int64_t{0}}, {"bias", int64_t{0}}};
    if (scale != 1.0) attributes.Set("scale", scale);
    return Emit(node, Op::kLinear, {x, Adapter(LoraAName(t.module), {t.r, t.in}, dtype)}, attributes,
                t.module + ".lora_A");
  }

  void AddToLinear(const Node& node, const LoraTarget& t) {
    Node base = node;
    const ValueId y = node.outputs[0];
    Value base_value = graph_.value(y);
    base_value.name += ".base";
    base_value.role = Role::kActivation;
    base.outputs = {graph_.AddValue(base_value)};
    graph_.AddNode(base);
    const ValueId down = Down(node, t, 1.0);
    const ValueId b = Adapter(LoraBName(t.module), {t.out, t.r}, graph_.value(down).type.dtype);
    Attributes attributes = {{"acc", int64_t{1}}, {"bias", int64_t{0}}, {"scale", t.scale}};
    if (node.attributes.Has("out")) attributes.Set("out", node.attributes.String("out"));
    graph_.AddNode({.op = Op::kLinear,
                    .inputs = {down, b, base.outputs[0]},
                    .outputs = {y},
                    .attributes = std::move(attributes),
                    .block = node.block,
                    .phase = node.phase});
  }

  void AddToHead(const Node& node, const LoraTarget& t) {
    Node head = node;
    const ValueId down = Down(node, t, t.scale);
    const ValueId b = Adapter(LoraBName(t.module), {t.out, t.r}, graph_.value(down).type.dtype);
    head.inputs.insert(head.inputs.begin() + LossOperands::kTarget + 1, {down, b});
    head.attributes.Set("pair2", int64_t{1});
    graph_.AddNode(std::move(head));
  }

  ValueId Rng() {
    if (rng_ == kNoValue) {
      rng_ = graph_.AddValue({.name = kRngInput, .type = {DType::kI64, {kNumRngWords}}, .role = Role::kInput});
    }
    return rng_;
  }

  std::vector<Node> nodes_;  // of the given graph; those without a branch are moved from
  Graph graph_;
  const double dropout_;
  std::map<std::string, const LoraTarget*> targets_;
  ValueId rng_ = kNoValue;
};

}  // namespace

Graph AddLora(Graph forward, const std::vector<LoraTarget>& targets, double dropout) {
  return LoraRewriter(std::move(forward), targets, dropout).Run();
}

}  // namespace temper
