#include "compile/mesh/ring.h"

#include <fmt/core.h>

#include <algorithm>

#include "graph/named_ops.h"
#include "graph/ops/context_attributes.h"
#include "graph/rule.h"

namespace temper {
namespace {

bool IsRing(const Node& node) {
  return (node.op == Op::kAttention || node.op == Op::kAttentionBackward) && node.attributes.Has("axes");
}

// Appends the steps of one attention node to a graph that has its values.
class RingWriter {
 public:
  // `used`: per value, whether a node reads it.
  RingWriter(Graph* graph, const Node& node, const RingSpec& spec, const std::vector<bool>& used)
      : graph_(*graph), node_(node), spec_(spec), used_(used), part_(ContextPartOf(node.attributes, "row")) {
    for (const char* key : {"heads", "kv_heads", "scale", "window", "softcap", "row", "ranks", "index"}) {
      if (const AttributeValue* value = node.attributes.Find(key)) kept_.Set(key, *value);
    }
  }

  void Forward() {
    const ValueId q = In(0), document_start = In(3);
    Pair keys = {In(1), In(2)};
    ValueId o = kNoValue, lse = kNoValue;
    for (int64_t s = 0; s < part_.ranks; ++s) {
      const Pair next = NextKeys(keys, s);
      std::vector<ValueId> inputs = {q, keys.k, keys.v, document_start};
      if (s > 0) inputs.insert(inputs.end(), {o, lse});
      const ValueId o_before = o, lse_before = lse;
      o = SumOfStep(s, Out(0));
      lse = SumOfStep(s, Out(1));
      Add(Op::kAttentionStep, std::move(inputs), {o, lse}, StepAttributes(s));
      if (s > 0) {
        graph_.value(o).updates = o_before;
        graph_.value(lse).updates = lse_before;
      }
      keys = next;
    }
    Finish(o, Out(0));
  }

  void Backward() {
    Pair keys = {In(2), In(3)};
    ValueId d_q = kNoValue;
    std::vector<ValueId> travelling;  // sums of d_k, d_v for the keys that this rank had last, if needed
    std::vector<ValueId> home;
    for (const int i : {1, 2}) {
      if (used_[static_cast<size_t>(Out(i))]) home.push_back(Out(i));
    }
    for (int64_t s = 0; s < part_.ranks; ++s) {
      const Pair next = NextKeys(keys, s);
      std::vector<ValueId> arrived;
      if (s > 0 && !home.empty()) arrived = Shift(travelling, fmt::format(".behind{}", s));
      std::vector<ValueId> inputs = {In(0), In(1), keys.k, keys.v, In(4), In(5), In(6)};
      if (s > 0) inputs.push_back(d_q);
      const ValueId before = d_q;
      d_q = SumOfStep(s, Out(0));
      const ValueId d_k = New(graph_.value(Out(1)).name + ".part", SumType(keys.k));
      const ValueId d_v = New(graph_.value(Out(2)).name + ".part", SumType(keys.v));
      Add(Op::kAttentionStepBackward, std::move(inputs), {d_q, d_k, d_v}, StepAttributes(s));
      if (s > 0) graph_.value(d_q).updates = before;
      std::vector<ValueId> own;
      if (used_[static_cast<size_t>(Out(1))]) own.push_back(d_k);
      if (used_[static_cast<size_t>(Out(2))]) own.push_back(d_v);
      for (size_t i = 0; i < arrived.size(); ++i) {
        const ValueId sum = New(graph_.value(home[i]).name + ".sum", graph_.value(own[i]).type);
        Add(Op::kAdd, {arrived[i], own[i]}, {sum}, {});
        own[i] = sum;
      }
      travelling = std::move(own);
      keys = next;
    }
    Finish(d_q, Out(0));
    if (home.empty()) return;
    const bool same = graph_.value(travelling[0]).type == graph_.value(home[0]).type;
    const std::vector<ValueId> back = Shift(travelling, ".home", same ? home : std::vector<ValueId>());
    for (size_t i = 0; i < home.size(); ++i) Finish(back[i], home[i]);
  }

 private:
  struct Pair {
    ValueId k = kNoValue, v = kNoValue;
  };

  ValueId In(int i) const { return node_.inputs[static_cast<size_t>(i)]; }
  ValueId Out(int i) const { return node_.outputs[static_cast<size_t>(i)]; }
  ValueId New(std::string name, const TensorType& type) {
    return graph_.AddValue({.name = std::move(name), .type = type});
  }
  TensorType SumType(ValueId id) const {
    const TensorType& type = graph_.value(id).type;
    return {type.dtype == DType::kF64 ? DType::kF64 : DType::kF32, type.shape};
  }
  void Add(Op op, std::vector<ValueId> inputs, std::vector<ValueId> outputs, Attributes attributes) {
    graph_.AddNode({.op = op,
                    .inputs = std::move(inputs),
                    .outputs = std::move(outputs),
                    .attributes = std::move(attributes),
                    .block = node_.block,
                    .phase = node_.phase});
  }
  Attributes StepAttributes(int64_t s) const {
    Attributes a = kept_;
    a.Set("origin", (part_.index - s + part_.ranks) % part_.ranks);
    a.Set("acc", int64_t{s > 0});
    return a;
  }
  // The output of the sums of step s: the node's own output in the last step, unless it must be rounded.
  ValueId SumOfStep(int64_t s, ValueId final) {
    const TensorType sum = SumType(final);
    if (s + 1 == part_.ranks && sum == graph_.value(final).type) return final;
    return New(graph_.value(final).name + ".sum", sum);
  }
  // Rounds a sum, unless it already is the node's output.
  void Finish(ValueId sum, ValueId final) {
    if (sum == final) return;
    Add(Op::kCast, {sum}, {final}, {{"dtype", std::string(ToString(graph_.value(final).type.dtype))}});
  }
  std::vector<ValueId> Shift(const std::vector<ValueId>& values, const std::string& suffix,
                             std::vector<ValueId> outputs = {}) {
    for (size_t i = outputs.size(); i < values.size(); ++i) {
      outputs.push_back(New(graph_.value(values[i]).name + suffix, graph_.value(values[i]).type));
    }
    Attributes a = {{"axes", node_.attributes.String("axes")}, {"ranks", part_.ranks}};
    if (spec_.background) a.Set("background", int64_t{1});
    Add(Op::kShift, values, outputs, std::move(a));
    return outputs;
  }
  Pair NextKeys(const Pair& keys, int64_t s) {
    if (s + 1 == part_.ranks) return {};
    const auto moved = Shift({keys.k, keys.v}, fmt::format(".from{}", s + 1));
    return {moved[0], moved[1]};
  }

  Graph& graph_;
  const Node& node_;
  const RingSpec& spec_;
  const std::vector<bool>& used_;
  const ContextPart part_;
  Attributes kept_;
};

}  // namespace

Graph LowerRings(Graph graph, const RingSpec& spec) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), IsRing)) return graph;
  std::vector<bool> used(static_cast<size_t>(graph.num_values()), false);
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.inputs) used[static_cast<size_t>(id)] = true;
  }
  std::vector<Node> nodes = std::move(graph.nodes());
  graph.nodes().clear();
  for (Node& node : nodes) {
    if (!IsRing(node)) {
      graph.AddNode(std::move(node));
      continue;
    }
    RingWriter ring(&graph, node, spec, used);
    node.op == Op::kAttention ? ring.Forward() : ring.Backward();
  }
  return graph;
}

}  // namespace temper
