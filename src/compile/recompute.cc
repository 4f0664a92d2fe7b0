#include "compile/recompute.h"

#include <map>

#include "compile/collectives.h"

namespace temper {
namespace {

// Index of the forward node that makes each value, or -1.
std::vector<int> ForwardMakers(const Graph& graph) {
  std::vector<int> makers(graph.num_values(), -1);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].phase != Phase::kForward) continue;
    for (ValueId id : graph.nodes()[i].outputs) makers[id] = static_cast<int>(i);
  }
  return makers;
}

// Clones, into `out`, the forward nodes of one block that its backward nodes need.
class BlockCloner {
 public:
  BlockCloner(const Graph& graph, const std::vector<int>& makers, const WeightMoves& moves, Recompute mode, int block,
              Graph* out)
      : graph_(graph), makers_(makers), moves_(moves), mode_(mode), block_(block), out_(out) {}

  // The value to use in the backward in place of `id`. Clones are made on first need, in dependency order.
  ValueId Replacement(ValueId id) {
    const int maker = makers_[id];
    if (maker < 0 || !IsCloned(graph_.nodes()[static_cast<size_t>(maker)])) return id;
    if (const auto it = clones_.find(id); it != clones_.end()) return it->second;
    Node clone = graph_.nodes()[static_cast<size_t>(maker)];
    for (ValueId& input : clone.inputs) input = Replacement(input);
    for (ValueId& output : clone.outputs) {
      const ValueId fresh = out_->AddValue(graph_.value(output));
      clones_[output] = fresh;
      output = fresh;
    }
    clone.phase = Phase::kBackward;
    out_->AddNode(std::move(clone));
    return clones_.at(id);
  }

 private:
  bool IsCloned(const Node& node) const {
    const bool whole = mode_ == Recompute::kBlock && block_ >= 0;
    return node.block == block_ && (whole || moves_.gathers[static_cast<size_t>(&node - graph_.nodes().data())]);
  }

  const Graph& graph_;
  const std::vector<int>& makers_;
  const WeightMoves& moves_;
  const Recompute mode_;
  const int block_;
  Graph* const out_;
  std::map<ValueId, ValueId> clones_;
};

}  // namespace

Graph RecomputeBlocks(const Graph& graph, const RecomputeSpec& spec) {
  if (spec.mode == Recompute::kNone && !spec.gather_weights_again) return graph;
  const std::vector<int> makers = ForwardMakers(graph);
  const WeightMoves moves = FindWeightMoves(graph);
  Graph result;
  for (ValueId id = 0; id < graph.num_values(); ++id) result.AddValue(graph.value(id));
  std::map<int, BlockCloner> cloners;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kBackward || (node.block < 0 && !spec.outside_blocks)) {
      result.AddNode(node);
      continue;
    }
    BlockCloner& cloner =
        cloners.try_emplace(node.block, graph, makers, moves, spec.mode, node.block, &result).first->second;
    Node backward = node;
    for (ValueId& input : backward.inputs) input = cloner.Replacement(input);
    result.AddNode(std::move(backward));
  }
  return result;
}

}  // namespace temper
