#include "compile/memory/recompute.h"

#include <algorithm>
#include <map>

#include "compile/memory/selective.h"
#include "compile/mesh/collectives.h"

namespace temper {
namespace {

// Per value: index of the forward node that makes it, or -1.
std::vector<int> ForwardMakers(const Graph& graph) {
  std::vector<int> makers(graph.num_values(), -1);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].phase != Phase::kForward) continue;
    for (ValueId id : graph.nodes()[i].outputs) makers[id] = static_cast<int>(i);
  }
  return makers;
}

// Per node: whether it is recomputed.
std::vector<bool> RunAgain(const Graph& graph, const RecomputeSpec& spec) {
  const auto& nodes = graph.nodes();
  const WeightMoves moves = FindWeightMoves(graph);
  std::vector<bool> again(nodes.size(), spec.mode == Recompute::kBlock);
  if (spec.mode == Recompute::kSelective) again = CheapToRecompute(graph);
  int last_block = kBlockBefore;  // of those with a backward: a teacher's have none
  for (const Node& node : nodes) {
    if (node.phase == Phase::kBackward) last_block = std::max(last_block, node.block);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int block = nodes[i].block;
    const bool in_range = nodes[i].phase == Phase::kForward && 0 <= block && block < spec.blocks;
    const bool dropped = block <= last_block - spec.gathered_blocks;
    again[i] = moves.gathers[i] ? dropped : again[i] && in_range;
  }
  return again;
}

// Clones into `out` the forward nodes of one block that its backward needs and that are to be recomputed. `out` has the
// nodes before them; `place`: index in `out` of the given graph's nodes.
class BlockCloner {
 public:
  BlockCloner(const std::vector<int>& makers, const std::vector<bool>& again, const std::vector<size_t>& place,
              int block, Graph* out)
      : makers_(makers), again_(again), place_(place), block_(block), out_(out) {}

  // The value to use in the backward in place of `id`. Clones are made on first need, in dependency order.
  ValueId Replacement(ValueId id) {
    const int maker = makers_[id];
    if (maker < 0 || !again_[static_cast<size_t>(maker)]) return id;
    const size_t at = place_[static_cast<size_t>(maker)];
    if (out_->nodes()[at].block != block_) return id;
    if (const auto it = clones_.find(id); it != clones_.end()) return it->second;
    Node clone = out_->nodes()[at];
    for (ValueId& input : clone.inputs) input = Replacement(input);
    for (ValueId& output : clone.outputs) {
      const ValueId fresh = out_->AddValue(Value(out_->value(output)));
      clones_[output] = fresh;
      output = fresh;
    }
    clone.phase = Phase::kBackward;
    out_->AddNode(std::move(clone));
    return clones_.at(id);
  }

 private:
  const std::vector<int>& makers_;
  const std::vector<bool>& again_;
  const std::vector<size_t>& place_;
  const int block_;
  Graph* const out_;
  std::map<ValueId, ValueId> clones_;
};

}  // namespace

Graph RecomputeBlocks(Graph graph, const RecomputeSpec& spec) {
  TEMPER_CHECK(spec.mode != Recompute::kAuto) << "the recompute mode must be chosen before";
  if (spec.mode == Recompute::kNone && spec.gathered_blocks == kAllBlocks) return graph;
  const std::vector<int> makers = ForwardMakers(graph);
  const std::vector<bool> again = RunAgain(graph, spec);
  std::vector<Node> nodes = std::move(graph.nodes());
  graph.nodes().clear();
  graph.nodes().reserve(nodes.size());
  std::vector<size_t> place;
  place.reserve(nodes.size());
  std::map<int, BlockCloner> cloners;
  for (Node& node : nodes) {
    if (node.phase == Phase::kBackward && (node.block >= 0 || spec.outside_blocks)) {
      BlockCloner& cloner = cloners.try_emplace(node.block, makers, again, place, node.block, &graph).first->second;
      for (ValueId& input : node.inputs) input = cloner.Replacement(input);
    }
    place.push_back(graph.nodes().size());
    graph.AddNode(std::move(node));
  }
  return graph;
}

}  // namespace temper
