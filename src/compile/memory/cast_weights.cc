#include "compile/memory/cast_weights.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"
#include "program/program.h"

namespace temper {
namespace {

using Matrices = std::map<std::string, TensorType>;  // by name

// Only micro-batches say what is trained.
Matrices TrainedMatricesOf(const StepGraphs& step) {
  Matrices matrices;
  const Graph& graph = step.train().front();
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    const bool trained = value.role == Role::kWeight && value.trainable && value.updates == kNoValue;
    if (trained && value.type.dtype == DType::kBF16 && value.type.shape.rank() > 1) {
      matrices.emplace(value.name, value.type);
    }
  }
  return matrices;
}

// Of one graph.
class Caster {
 public:
  Caster(Graph graph, const Matrices& names) : nodes_(std::move(graph.nodes())), graph_(std::move(graph)) {
    graph_.nodes().clear();
    graph_.nodes().reserve(nodes_.size());
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      Value& value = graph_.value(id);
      if (value.role != Role::kWeight || value.updates != kNoValue || !names.contains(value.name)) continue;
      value.type.dtype = DType::kF32;
      masters_.emplace(id, kNoValue);
    }
  }

  // Adds the nodes [begin, end), which share copies within each segment. Returns the index behind the last one added.
  size_t Add(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const bool same_segment =
          i > begin && nodes_[i].phase == nodes_[i - 1].phase && nodes_[i].block == nodes_[i - 1].block;
      if (!same_segment) {
        for (auto& [master, copy] : masters_) copy = kNoValue;
      }
      AddNode(std::move(nodes_[i]));
    }
    return graph_.nodes().size();
  }

  size_t num_nodes() const { return nodes_.size(); }
  Graph TakeGraph() { return std::move(graph_); }

 private:
  void AddNode(Node node) {
    if (node.op == Op::kEmbedding && masters_.contains(node.inputs[0])) return AddLookUp(std::move(node));
    const bool updates = UpdateRuleOf(node.op) != nullptr;
    if (updates) UpdateAlone(&node);
    for (ValueId& id : node.inputs) {
      const auto master = masters_.find(id);
      if (master != masters_.end() && !updates) id = CopyOf(master, node);
    }
    graph_.AddNode(std::move(node));
  }

  void AddLookUp(Node node) {
    const ValueId rows = node.outputs[0];
    Value looked_up = graph_.value(rows);
    looked_up.type.dtype = DType::kF32;
    node.outputs[0] = graph_.AddValue(std::move(looked_up));
    graph_.AddNode(node);
    AddCast(node.outputs[0], rows, node);
  }

  ValueId CopyOf(std::map<ValueId, ValueId>::iterator master, const Node& reader) {
    auto& [id, copy] = *master;
    if (copy != kNoValue) return copy;
    const Value& value = graph_.value(id);
    copy = graph_.AddValue({.name = value.name, .type = {DType::kBF16, value.type.shape}});
    AddCast(id, copy, reader);
    return copy;
  }

  void AddCast(ValueId from, ValueId to, const Node& place) {
    graph_.AddNode({.op = Op::kCast,
                    .inputs = {from},
                    .outputs = {to},
                    .attributes = {{"dtype", std::string(ToString(DType::kBF16))}},
                    .block = place.block,
                    .phase = place.phase});
  }

  // The weight takes the place of its master, which no node uses any more.
  void UpdateAlone(Node* update) {
    if (!update->attributes.Flag("weight")) return;
    const ValueId rounded = update->outputs.back(), weight = graph_.Root(rounded);
    if (!masters_.contains(weight)) return;
    const ValueId before = std::exchange(update->inputs[UpdateOperands::kMaster], weight);
    for (const ValueId unused : {before, rounded}) {
      graph_.value(unused) = {.name = graph_.value(unused).name, .type = graph_.value(unused).type};
    }
    graph_.value(update->outputs[0]).updates = weight;
    update->outputs.pop_back();
    Attributes attributes;
    for (const auto& [key, value] : update->attributes.entries()) {
      if (key != "dtype") attributes.Set(key, key == "weight" ? AttributeValue(int64_t{0}) : value);
    }
    update->attributes = std::move(attributes);
  }

  std::vector<Node> nodes_;  // of the given graph
  Graph graph_;
  std::map<ValueId, ValueId> masters_;  // each with its copy in the segment at hand
};

void CastIn(PipelinedGraph* graph, const Matrices& names) {
  Caster caster(std::move(graph->graph), names);
  RewriteParts(
      caster.num_nodes(), [&](size_t begin, size_t end) { return caster.Add(begin, end); }, &graph->parts);
  graph->graph = caster.TakeGraph();
}

void CastIn(Graph* graph, const Matrices& names) {
  PipelinedGraph whole{.graph = std::move(*graph)};
  CastIn(&whole, names);
  *graph = std::move(whole.graph);
}

}  // namespace

Bytes CopiesOfMatrices(const StepGraphs& step) {
  Bytes bytes{};
  for (const auto& [name, type] : TrainedMatricesOf(step)) bytes += AlignUp(type.bytes(), kAlignment);
  return bytes;
}

void CastWeights(StepGraphs* step) {
  const Matrices names = TrainedMatricesOf(*step);
  for (ProgramGraphs& program : step->programs) {
    for (ProgramGraphs::MicroBatches& some : program.micro_batches) CastIn(&some.graph, names);
    CastIn(&program.update, names);
    if (program.pipeline) CastIn(&program.pipeline->gathers, names);
  }
}

}  // namespace temper
