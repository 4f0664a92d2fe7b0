#include "compile/mesh/gather_once.h"

#include <fmt/core.h>

#include <map>
#include <set>
#include <string>

#include "compile/mesh/collectives.h"

namespace temper {
namespace {

// Gathers of one stage's weights, each with the name of its result: the weight's name and the gathered axes.
class Gathers {
 public:
  explicit Gathers(const Graph& graph) {
    const WeightMoves moves = FindWeightMoves(graph);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (!moves.gathers[i]) continue;
      const auto before = names_.find(node.inputs[0]);
      const bool follows = before != names_.end();
      // Inputs are excluded: every micro-batch has its own.
      const Role role = graph.value(node.inputs[0]).role;
      if (!follows && role != Role::kWeight && role != Role::kAdapter) continue;
      const std::string from = follows ? before->second : graph.value(node.inputs[0]).name;
      names_[node.outputs[0]] = fmt::format("gathered[{}]:{}", node.attributes.String("axes"), from);
    }
    for (const Node& node : graph.nodes()) {
      if (Has(node)) continue;
      for (const ValueId id : node.inputs) {
        if (names_.contains(id)) ends_.insert(id);
      }
    }
  }

  bool Has(const Node& node) const { return !node.outputs.empty() && names_.contains(node.outputs[0]); }
  // Whether a node computes with it.
  bool IsEnd(ValueId id) const { return ends_.contains(id); }
  const std::string& NameOf(ValueId id) const { return names_.at(id); }

 private:
  std::map<ValueId, std::string> names_;
  std::set<ValueId> ends_;
};

}  // namespace

GatheredOnce GatherOnce(const PipelinedGraph& stage) {
  const Graph& graph = stage.graph;
  const Gathers gathers(graph);
  GatheredOnce result;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    Value value = graph.value(id);
    if (gathers.IsEnd(id)) {
      value.name = gathers.NameOf(id);
      value.role = Role::kCache;
    }
    result.stage.graph.AddValue(value);
    value.updates = kNoValue;  // gathers overwrite nothing
    result.gathers.AddValue(std::move(value));
  }
  std::map<std::string, ValueId> known;  // values gathered already, by name
  std::map<ValueId, ValueId> same;       // values of that name
  for (const PipelinePart& part : stage.parts) {
    const size_t begin = result.stage.graph.nodes().size();
    for (size_t i = part.begin; i < part.end; ++i) {
      Node node = graph.nodes()[i];
      if (!gathers.Has(node)) {
        result.stage.graph.AddNode(std::move(node));
        continue;
      }
      const auto [it, fresh] = known.try_emplace(gathers.NameOf(node.outputs[0]), node.outputs[0]);
      same[node.outputs[0]] = it->second;
      if (!fresh) continue;
      node.phase = Phase::kForward;
      if (const auto before = same.find(node.inputs[0]); before != same.end()) node.inputs[0] = before->second;
      result.gathers.AddNode(std::move(node));
    }
    result.stage.parts.push_back({part.kind, part.chunk, begin, result.stage.graph.nodes().size()});
  }
  return result;
}

}  // namespace temper
