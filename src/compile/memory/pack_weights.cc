#include "compile/memory/pack_weights.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/rule.h"
#include "program/buffer_names.h"
#include "tensor/packable.h"

namespace temper {
namespace {

bool IsFrozenAndPackable(const Value& value) {
  return value.role == Role::kWeight && !value.trainable && value.updates == kNoValue && value.tier == Tier::kDevice &&
         IsPackable(value.type);
}

std::vector<Graph*> GraphsOf(StepGraphs* step) {
  std::vector<Graph*> graphs;
  for (ProgramGraphs& program : step->programs) {
    for (ProgramGraphs::MicroBatches& some : program.micro_batches) graphs.push_back(&some.graph.graph);
    graphs.push_back(&program.update);
    if (program.pipeline) graphs.push_back(&program.pipeline->gathers);
  }
  return graphs;
}

// Frozen matrices, and stacks of them, that no graph reads in any other way than a product that may take it packed.
std::set<std::string> Packable(const std::vector<Graph*>& graphs) {
  std::set<std::string> frozen, others;
  for (const Graph* graph : graphs) {
    for (ValueId id = 0; id < graph->num_values(); ++id) {
      const Value& value = graph->value(id);
      if (value.role == Role::kWeight) (IsFrozenAndPackable(value) ? frozen : others).insert(value.name);
    }
    for (const Node& node : graph->nodes()) {
      const int packed = RuleOf(node.op).packed.input;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Value& value = graph->value(node.inputs[i]);
        if (value.role == Role::kWeight && static_cast<int>(i) != packed) others.insert(value.name);
      }
    }
  }
  for (const std::string& name : others) frozen.erase(name);
  return frozen;
}

void PackIn(Graph* graph, const std::set<std::string>& names) {
  std::map<ValueId, ValueId> made;  // of a weight: the value with its row pairs
  const auto row_pairs = [&](ValueId of) {
    const auto [it, fresh] = made.try_emplace(of, kNoValue);
    if (fresh) {
      Value weight = graph->value(of);
      weight.name = RowPairsName(weight.name);
      weight.type.layout = ElementLayout::kRowPairs;
      it->second = graph->AddValue(std::move(weight));
    }
    return it->second;
  };
  for (Node& node : graph->nodes()) {
    const PackedInput packed = RuleOf(node.op).packed;
    if (packed.input < 0) continue;
    ValueId& input = node.inputs[static_cast<size_t>(packed.input)];
    const Value& weight = graph->value(input);
    if (weight.role != Role::kWeight || !names.contains(weight.name)) continue;
    if (packed.layout == ElementLayout::kRowPairs) {
      input = row_pairs(input);
    } else if (packed.gradient != nullptr && node.attributes.Flag(packed.gradient)) {
      const ValueId again = row_pairs(input);
      node.inputs.push_back(again);
      node.attributes.Set(packed.of_gradient, int64_t{1});
    }
  }
  for (ValueId id = 0; id < graph->num_values(); ++id) {
    Value& value = graph->value(id);
    if (value.role == Role::kWeight && names.contains(value.name)) value.type.layout = ElementLayout::kColumnPairs;
  }
}

}  // namespace

void PackWeights(StepGraphs* step) {
  const std::vector<Graph*> graphs = GraphsOf(step);
  const std::set<std::string> names = Packable(graphs);
  for (Graph* graph : graphs) PackIn(graph, names);
}

}  // namespace temper
