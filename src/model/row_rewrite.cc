#include "model/row_rewrite.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_operands.h"
#include "graph/row_list.h"
#include "graph/rule.h"
#include "model/forward.h"

namespace temper {
namespace {

class RowRewriter {
 public:
  RowRewriter(const TrainedRows& rows, bool training, Graph forward)
      : rows_(rows), training_(training), nodes_(std::move(forward.nodes())), graph_(std::move(forward)) {
    graph_.nodes().clear();
    table_ = graph_.FindSource(rows.weight);
  }

  Graph Run() && {
    using Readers = TrainedCopy::Readers;
    for (Node& node : nodes_) {
      build_.EnterBlockOf(node);
      const auto reads = [&](size_t input) { return table_ != kNoValue && node.inputs[input] == table_; };
      if (node.op == Op::kEmbedding && reads(0) && rows_.readers != Readers::kHead) {
        LookUp(std::move(node));
      } else if ((IsLoss(node.op) || node.op == Op::kLinear) && reads(1) && rows_.readers != Readers::kEmbedding) {
        AddToHead(std::move(node));
      } else {
        graph_.AddNode(std::move(node));
      }
    }
    return std::move(graph_);
  }

 private:
  ValueId Source(const std::string& name, Shape shape, DimLabels labels, Role role, bool trained) {
    return graph_.AddValue({.name = name,
                            .type = {graph_.value(table_).type.dtype, shape},
                            .role = role,
                            .trainable = trained,
                            .decays = trained,
                            .labels = graph_.value(table_).labels.empty() ? DimLabels() : labels});
  }
  DimLabel Label(int dim) const {
    const DimLabels& labels = graph_.value(table_).labels;
    return labels.empty() ? DimLabel::kNone : labels[dim];
  }
  ValueId Trained() {
    if (trained_ == kNoValue) {
      trained_ = Source(rows_.name(), rows_.shape(), {DimLabel::kRank, Label(1)}, Role::kAdapter, training_);
    }
    return trained_;
  }

  void LookUp(const Node& node) {
    const std::string list = PrintRowList(rows_.rows), name = graph_.value(node.outputs[0]).name;
    Attributes others = node.attributes, only = node.attributes;
    others.Set("without", list);
    only.Set("only", list);
    only.Set("whole", rows_.vocabulary);
    const ValueId token = node.inputs[1];
    const ValueId of_table = build_.AddOne(Op::kEmbedding, {table_, token}, std::move(others), name + ".table");
    const ValueId of_rows = build_.AddOne(Op::kEmbedding, {Trained(), token}, std::move(only), name + ".rows");
    graph_.AddNode({.op = Op::kAdd,
                    .inputs = {of_table, of_rows},
                    .outputs = node.outputs,
                    .block = node.block,
                    .phase = node.phase});
  }

  // x (R - E0)^T, made once per x.
  ValueId Change(const Node& node) {
    const auto [made, fresh] = change_.try_emplace(node.inputs[0], kNoValue);
    if (!fresh) return made->second;
    if (original_ == kNoValue) {
      original_ = Source(rows_.original(), rows_.shape(), {DimLabel::kRank, Label(1)}, Role::kWeight, false);
    }
    const ValueId x = node.inputs[0];
    const ValueId was =
        build_.AddOne(Op::kLinear, {x, original_}, {{"acc", int64_t{0}}, {"bias", int64_t{0}}, {"scale", -1.0}},
                      rows_.module + ".rows_were");
    return made->second = build_.AddOne(Op::kLinear, {x, Trained(), was}, {{"acc", int64_t{1}}, {"bias", int64_t{0}}},
                                        rows_.module + ".rows_change");
  }
  ValueId Words() {
    if (words_ == kNoValue) {
      words_ = Source(rows_.words(), {rows_.vocabulary, std::ssize(rows_.rows)}, {Label(0), DimLabel::kRank},
                      Role::kAdapter, false);
    }
    return words_;
  }

  void AddToHead(Node node) {
    const ValueId change = Change(node), words = Words();
    if (IsLoss(node.op)) {
      TEMPER_CHECK(!node.attributes.Flag("pair2")) << "the head has an adapter";
      node.inputs.insert(node.inputs.begin() + LossOperands::kTarget + 1, {change, words});
      node.attributes.Set("pair2", int64_t{1});
      graph_.AddNode(std::move(node));
      return;
    }
    const ValueId y = node.outputs[0];
    Value base = graph_.value(y);
    base.name += ".base";
    base.role = Role::kActivation;
    node.outputs = {graph_.AddValue(base)};
    Attributes attributes = {{"acc", int64_t{1}}, {"bias", int64_t{0}}};
    if (node.attributes.Has("out")) attributes.Set("out", node.attributes.String("out"));
    Node sum{.op = Op::kLinear,
             .inputs = {change, words, node.outputs[0]},
             .outputs = {y},
             .attributes = std::move(attributes),
             .block = node.block,
             .phase = node.phase};
    graph_.AddNode(std::move(node));
    graph_.AddNode(std::move(sum));
  }

  const TrainedRows& rows_;
  const bool training_;
  std::vector<Node> nodes_;
  Graph graph_;
  GraphBuilder build_{&graph_};
  ValueId table_ = kNoValue, trained_ = kNoValue, original_ = kNoValue, words_ = kNoValue;
  std::map<ValueId, ValueId> change_;  // by x
};

}  // namespace

Graph ReadRows(std::span<const TrainedRows> all, bool training, Graph forward) {
  for (const TrainedRows& rows : all) forward = RowRewriter(rows, training, std::move(forward)).Run();
  return forward;
}

}  // namespace temper
