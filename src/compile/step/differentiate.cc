#include "compile/step/differentiate.h"

#include <algorithm>

#include "graph/named_ops.h"
#include "graph/rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

class Differentiator final : public GradientSink {
 public:
  Differentiator(Graph forward, bool accumulate)
      : graph_(std::move(forward)), accumulate_(accumulate), forward_nodes_(graph_.nodes().size()) {
    graph_.nodes().reserve(forward_nodes_ * 3);
    MarkNeeds();
    MarkRoots();
  }

  Graph Run() {
    if (accumulate_) AddGradientSources();
    for (size_t i = forward_nodes_; i-- > 0;) {
      at_ = i;
      // Emitting nodes moves the graph's. A node that its root's rule extends must stay in place.
      const bool extends = RuleOf(graph_.nodes()[i].op).only_root;
      current_ = extends ? graph_.nodes()[i] : std::move(graph_.nodes()[i]);
      Follow();
      if (!extends) graph_.nodes()[i] = std::move(current_);
    }
    return std::move(graph_);
  }

  const Node& node() const override { return current_; }
  const Value& value(ValueId id) const override { return graph_.value(id); }
  ValueId OutputGradient(int i) const override { return Get(gradients_, Input(node().outputs, i)); }
  bool Needs(int input) const override { return Get(needs_, Input(node().inputs, input)); }
  ValueId Pending(int input) const override { return Get(gradients_, Input(node().inputs, input)); }

  ValueId PendingBefore(int input) const override {
    const ValueId pending = Pending(input);
    // Values below num_sources_ are forward values and the sources
    // of AddGradientSources; results of new nodes come after.
    return pending < num_sources_ ? pending : kNoValue;
  }

  std::vector<ValueId> Emit(Op op, std::vector<ValueId> inputs, Attributes attributes) override {
    Result<Types> types = InferTypes(op, TypesOf(graph_, inputs), attributes);
    TEMPER_CHECK(types.ok()) << "gradient of " << ToString(node().op) << ": " << types.status().message();
    Node backward{.op = op,
                  .inputs = std::move(inputs),
                  .attributes = std::move(attributes),
                  .block = node().block,
                  .phase = Phase::kBackward,
                  .rng_name = node().rng_name};
    for (const TensorType& type : *types) backward.outputs.push_back(graph_.AddValue({.name = "", .type = type}));
    const std::vector<ValueId> outputs = backward.outputs;
    graph_.AddNode(std::move(backward));
    return outputs;
  }

  void Deliver(int input, ValueId gradient) override {
    const ValueId target = Input(node().inputs, input);
    const ValueId pending = Get(gradients_, target);
    Value& g = graph_.value(gradient);
    if (g.name.empty()) g.name = GradientName(graph_.value(target).name);
    if (graph_.value(target).trainable) {
      TEMPER_CHECK(g.name == GradientName(graph_.value(target).name))
          << ToString(node().op) << " passes on " << g.name << " as the gradient of " << graph_.value(target).name;
      g.role = Role::kGradient;
      g.updates = pending;
    }
    Set(gradients_, target, gradient);
  }

  void Contribute(int input, ValueId gradient) override {
    const ValueId pending = Pending(input);
    gradient = OfItsOwn(Input(node().inputs, input), gradient);
    if (pending == kNoValue) {
      Deliver(input, gradient);
    } else {
      Deliver(input, Emit(Op::kAdd, {pending, gradient}, {})[0]);
    }
  }

  std::vector<ValueId> Extend(std::vector<ValueId> inputs, Attributes attributes) override {
    Node& root = graph_.nodes()[at_];
    root.inputs = std::move(inputs);
    root.attributes = std::move(attributes);
    Result<Types> types = InferTypes(root.op, TypesOf(graph_, root.inputs), root.attributes);
    TEMPER_CHECK(types.ok()) << types.status().message();
    std::vector<ValueId> added;
    while (root.outputs.size() < types->size()) {
      added.push_back(graph_.AddValue({.name = "", .type = (*types)[root.outputs.size()]}));
      root.outputs.push_back(added.back());
    }
    return added;
  }

 private:
  // Adds the gradients of node()'s inputs, from those of its outputs.
  void Follow() {
    const Node& node = current_;
    if (RuleOf(node.op).only_root) {
      if (!seeds_itself_[static_cast<size_t>(node.outputs[0])]) return;
    } else if (std::none_of(node.outputs.begin(), node.outputs.end(),
                            [&](ValueId id) { return Get(gradients_, id) != kNoValue; })) {
      return;
    }
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return Get(needs_, id); })) return;
    void (*rule)(GradientSink&) = RuleOf(node.op).gradient;
    TEMPER_CHECK(rule != nullptr) << ToString(node.op) << " has no gradient";
    rule(*this);
  }

  // Of a trained weight.
  static DType GradientTypeOf(const Value& weight) {
    return weight.type.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  }

  // For a trained weight that is a direct operand of an op like `add`, which passes its output's gradient on: that one
  // lives for a micro-batch, and may be of another type.
  ValueId OfItsOwn(ValueId target, ValueId gradient) {
    if (!graph_.value(target).trainable) return gradient;
    const DType own = GradientTypeOf(graph_.value(target));
    const Value& g = graph_.value(gradient);
    if (g.type.dtype == own && (g.name.empty() || g.name == GradientName(graph_.value(target).name))) return gradient;
    return Emit(Op::kCast, {gradient}, {{"dtype", std::string(ToString(own))}})[0];
  }

  static ValueId Input(const std::vector<ValueId>& ids, int i) { return ids[static_cast<size_t>(i)]; }
  template <class T>
  T Get(const std::vector<T>& per_value, ValueId id) const {
    return static_cast<size_t>(id) < per_value.size() ? per_value[static_cast<size_t>(id)]
                                                      : T(std::is_same_v<T, ValueId> ? kNoValue : 0);
  }
  template <class T>
  void Set(std::vector<T>& per_value, ValueId id, T x) {
    TEMPER_CHECK(static_cast<size_t>(id) < per_value.size()) << "gradient of a backward value";
    per_value[static_cast<size_t>(id)] = x;
  }

  void MarkNeeds() {
    needs_.assign(graph_.num_values(), 0);
    gradients_.assign(graph_.num_values(), kNoValue);
    for (ValueId id = 0; id < graph_.num_values(); ++id) needs_[id] = graph_.value(id).trainable;
    for (const Node& n : graph_.nodes()) {
      const bool reaches = !RuleOf(n.op).detached &&
                           std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId id) { return needs_[id] != 0; });
      for (ValueId id : n.outputs) needs_[id] = reaches || graph_.value(id).trainable;
    }
  }

  void MarkRoots() {
    TEMPER_CHECK(!graph_.roots().empty()) << "no loss to differentiate";
    seeds_itself_.assign(graph_.num_values(), 0);
    for (const auto& [loss, seed] : graph_.roots()) {
      if (seed == kNoValue) {
        seeds_itself_[static_cast<size_t>(loss)] = 1;
      } else {
        gradients_[static_cast<size_t>(loss)] = seed;
      }
    }
    graph_.roots().clear();
    num_sources_ = graph_.num_values();
  }

  void AddGradientSources() {
    const int before = graph_.num_values();
    for (ValueId id = 0; id < before; ++id) {
      if (!graph_.value(id).trainable) continue;
      const TensorType type{GradientTypeOf(graph_.value(id)), graph_.value(id).type.shape};
      gradients_[id] =
          graph_.AddValue({.name = GradientName(graph_.value(id).name), .type = type, .role = Role::kGradient});
    }
    num_sources_ = graph_.num_values();
  }

  Graph graph_;
  const bool accumulate_;
  const size_t forward_nodes_;
  size_t at_ = 0;
  Node current_;                    // whose gradient is being made
  ValueId num_sources_ = 0;         // values before this one are the forward graph's and gradients so far
  std::vector<char> needs_;         // per forward value: a trainable value reaches it
  std::vector<char> seeds_itself_;  // per forward value: a root without a seed
  std::vector<ValueId> gradients_;  // per forward value: its gradient so far
};

}  // namespace

Graph Differentiate(Graph forward, bool accumulate) {
  return Differentiator(std::move(forward), accumulate).Run();
}

}  // namespace temper
