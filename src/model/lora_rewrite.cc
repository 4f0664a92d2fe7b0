#include "model/lora_rewrite.h"

#include <map>
#include <utility>

#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_operands.h"
#include "graph/ops/operand_types.h"
#include "graph/rule.h"
#include "model/forward.h"

namespace temper {
namespace {

// Adds the branches node by node.
class LoraRewriter {
 public:
  LoraRewriter(Graph forward, const std::vector<LoraModule>& targets, double dropout, RowNorms norms)
      : nodes_(std::move(forward.nodes())), graph_(std::move(forward)), dropout_(dropout), norms_(norms) {
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
      build_.EnterBlockOf(node);
      const auto target = product ? targets_.find(graph_.value(node.inputs[1]).name) : targets_.end();
      if (target == targets_.end()) {
        graph_.AddNode(std::move(node));
      } else if (node.op == Op::kGroupedLinear) {
        AddToGrouped(node, target->second);
      } else if (node.op != Op::kLinear) {
        AddToHead(node, target->second);
      } else if (target->second.module->has_magnitudes) {
        AddWithMagnitudes(node, target->second);
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

  // dropout(x); made once per module and x.
  ValueId Dropped(const Node& node, const LoraModule& m) {
    const ValueId x = node.inputs[0];
    if (dropout_ == 0) return x;
    const auto [made, fresh] = dropped_.try_emplace({&m, x}, kNoValue);
    if (fresh) {
      made->second = build_.AddOne(Op::kDropout, {x, Rng()}, {{"p", dropout_}}, m.path + ".lora_dropout");
    }
    return made->second;
  }

  // scale * dropout(x) A^T, [T, R]; made once per module and x.
  ValueId Down(const Node& node, const LoraModule& m, double scale) {
    const auto [made, fresh] = down_.try_emplace({&m, node.inputs[0]}, kNoValue);
    if (!fresh) return made->second;
    const ValueId x = Dropped(node, m);
    const DType dtype = graph_.value(x).type.dtype;
    Attributes attributes = {{"acc", int64_t{0}}, {"bias", int64_t{0}}};
    if (scale != 1.0) attributes.Set("scale", scale);
    const DimLabels labels = LabelsOf(node);
    const ValueId a =
        Adapter(LoraAName(m.path), {m.r, m.in}, labels.empty() ? labels : DimLabels{DimLabel::kRank, labels[1]}, dtype);
    a_[&m] = a;
    return made->second = build_.AddOne(Op::kLinear, {x, a}, attributes, m.path + ".lora_A");
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

  // One number for each row of the product's weight, f32.
  ValueId Vector(const Node& node, const std::string& name, int64_t rows, DType dtype, bool trained) {
    const DimLabels labels = LabelsOf(node);
    return graph_.AddValue({.name = name,
                            .type = {dtype, {rows}},
                            .role = Role::kAdapter,
                            .trainable = trained,
                            .decays = trained,
                            .labels = labels.empty() ? labels : DimLabels{labels[0]}});
  }

  // ||W + s B A||^2 of each row.
  ValueId Squares(const Node& node, const Target& t, ValueId b, DType dtype) {
    const LoraModule& m = *t.module;
    const ValueId of_weight = Vector(node, t.part->squares, t.part->rows, dtype, false);
    if (norms_ == RowNorms::kLoaded) return of_weight;
    return build_.AddOne(Op::kRowSquares, {a_.at(&m), node.inputs[1], b, of_weight},
                         {{"scale", m.scale}, {"acc", int64_t{1}}}, t.part->squares + ".sum");
  }

  void AddWithMagnitudes(const Node& node, const Target& t) {
    const LoraModule& m = *t.module;
    const ValueId y = node.outputs[0];
    const std::string name = graph_.value(y).name;
    const DType statistic = StatisticDType(graph_.value(y).type.dtype);
    // The product of x, with its bias only where scaling does not touch it.
    const bool dropped = dropout_ > 0, has_bias = node.attributes.Flag("bias");
    TEMPER_CHECK(!node.attributes.Flag("acc")) << name << " adds to something: adapters come before fuse";
    Attributes plain = {{"acc", int64_t{0}}, {"bias", int64_t{0}}},
               branch = {{"acc", int64_t{0}}, {"bias", int64_t{0}}};
    branch.Set("scale", m.scale);
    if (node.attributes.Has("scale")) plain.Set("scale", node.attributes.Double("scale"));
    if (node.attributes.Has("out")) {
      for (Attributes* const a : {&plain, &branch}) a->Set("out", node.attributes.String("out"));
    }
    const ValueId x = node.inputs[0], w = node.inputs[1];
    ValueId base = kNoValue;
    if (dropped) base = build_.AddOne(Op::kLinear, node.inputs, node.attributes, name + ".base");
    const ValueId scaled =
        build_.AddOne(Op::kLinear, {dropped ? Dropped(node, m) : x, w}, plain, name + (dropped ? ".dropped" : ".base"));
    const ValueId down = Down(node, m, 1.0);
    const ValueId b = Up(node, t, down);
    std::vector<ValueId> up = {down, b};
    if (!dropped) {
      up.push_back(scaled);
      branch.Set("acc", int64_t{1});
    }
    const ValueId sum = build_.AddOne(Op::kLinear, std::move(up), branch, name + (dropped ? ".lora" : ".sum"));
    const ValueId squares = Squares(node, t, b, statistic);
    const ValueId magnitude = Vector(node, t.part->magnitude, t.part->rows, statistic, true);
    const auto scale = [&](ValueId columns, Attributes attributes, const char* suffix) {
      return build_.AddOne(Op::kScaleColumns, {columns, magnitude, squares}, std::move(attributes), name + suffix);
    };
    const auto finish = [&](Op op, std::vector<ValueId> inputs) {
      graph_.AddNode({.op = op, .inputs = std::move(inputs), .outputs = {y}, .block = node.block, .phase = node.phase});
    };
    if (dropped) {
      const ValueId changed = scale(scaled, {{"minus_one", int64_t{1}}}, ".changed");
      const ValueId added = build_.AddOne(Op::kAdd, {base, changed}, {}, name + ".added");
      return finish(Op::kAdd, {added, scale(sum, {}, ".scaled")});
    }
    if (!has_bias) return finish(Op::kScaleColumns, {sum, magnitude, squares});
    finish(Op::kAdd, {scale(sum, {}, ".scaled"), node.inputs[2]});
  }

  // The matrices that an adapter's matrix holds for a stack.
  ValueId Unstacked(ValueId w, int64_t matrices, bool interleaved) {
    Attributes attributes = {{"matrices", matrices}};
    if (interleaved) attributes.Set("interleaved", int64_t{1});
    return build_.AddOne(Op::kUnstack, {w}, std::move(attributes), graph_.value(w).name + ".unstacked");
  }

  // Both products go by the rows' experts, as the base's does.
  void AddToGrouped(const Node& node, const Target& t) {
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
      made->second = build_.AddOne(Op::kGroupedLinear, {x, Unstacked(a, m.matrices, false), expert},
                                   {{"acc", int64_t{0}}, {"active", active}}, m.path + ".lora_A");
    }
    const ValueId down = made->second;
    const ValueId b = Adapter(t.part->b, {t.part->rows, m.ranks()}, labelled(labels[1], DimLabel::kRank), dtype);
    const ValueId b_EOR = Unstacked(b, m.matrices, true);
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
  GraphBuilder build_{&graph_};
  const double dropout_;
  const RowNorms norms_;
  std::map<std::string, Target> targets_;                                    // by the weight's name
  std::map<std::pair<const LoraModule*, ValueId>, ValueId> down_, dropped_;  // by module and x
  std::map<const LoraModule*, ValueId> a_;
  ValueId rng_ = kNoValue;
};

}  // namespace

Graph AddLora(Graph forward, const std::vector<LoraModule>& targets, double dropout, RowNorms norms) {
  return LoraRewriter(std::move(forward), targets, dropout, norms).Run();
}

}  // namespace temper
