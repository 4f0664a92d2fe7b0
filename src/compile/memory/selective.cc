#include "compile/memory/selective.h"

#include <algorithm>
#include <map>

#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Maximum flow by shortest augmenting paths (Dinic), on the few tens of nodes of a block.
class Network {
 public:
  static constexpr int64_t kUnbounded = INT64_MAX / 4;

  int AddNode() {
    edges_of_.emplace_back();
    return static_cast<int>(edges_of_.size()) - 1;
  }
  void AddEdge(int from, int to, int64_t capacity) {
    edges_of_[At(from)].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[At(to)].push_back(edges_.size());
    edges_.push_back({from, 0});
  }

  // Per node: whether it is on the source's side of a minimum cut, of several cuts the one nearest to the source.
  std::vector<bool> SideOfSource(int source, int sink) {
    while (FindLevels(source), level_[At(sink)] >= 0) {
      next_.assign(edges_of_.size(), 0);
      while (Push(source, sink, kUnbounded) > 0) {
      }
    }
    std::vector<bool> side(level_.size());
    for (size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
    return side;
  }

 private:
  struct Edge {
    int to;
    int64_t left;
  };
  static size_t At(int node) { return static_cast<size_t>(node); }

  void FindLevels(int source) {
    level_.assign(edges_of_.size(), -1);
    level_[At(source)] = 0;
    std::vector<int> reached = {source};
    for (size_t i = 0; i < reached.size(); ++i) {
      for (const size_t e : edges_of_[At(reached[i])]) {
        const Edge& edge = edges_[e];
        if (edge.left == 0 || level_[At(edge.to)] >= 0) continue;
        level_[At(edge.to)] = level_[At(reached[i])] + 1;
        reached.push_back(edge.to);
      }
    }
  }

  int64_t Push(int from, int sink, int64_t most) {
    if (from == sink) return most;
    for (size_t& k = next_[At(from)]; k < edges_of_[At(from)].size(); ++k) {
      const size_t e = edges_of_[At(from)][k];
      if (edges_[e].left == 0 || level_[At(edges_[e].to)] != level_[At(from)] + 1) continue;
      const int64_t pushed = Push(edges_[e].to, sink, std::min(most, edges_[e].left));
      if (pushed == 0) continue;
      edges_[e].left -= pushed;
      edges_[e ^ 1].left += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

// Freeing one byte is worth moving this many. A norm moves two per freed byte, swiglu three: a limit well above that
// accepts all of these and short chains, but not recomputing many values to free a small one.
constexpr int64_t kMovedPerByte = 16;

// One block: its cheap forward nodes and the values around them.
class BlockCut {
 public:
  BlockCut(const Graph& graph, const std::vector<bool>& kept_anyway) : graph_(graph), kept_anyway_(kept_anyway) {}

  void AddForward(size_t index) {
    const Node& node = graph_.nodes()[index];
    const bool cheap = RuleOf(node.op).recompute == RecomputeCost::kCheap;
    // A node on the source's side is not recomputed. The maker of a value that is not cheap is the source itself.
    const int made = cheap ? network_.AddNode() : source_;
    if (cheap) {
      const Cost cost = CostOf(graph_, node);
      network_.AddEdge(source_, made, (cost.read + cost.written).v);
      for (const ValueId id : node.inputs) network_.AddEdge(NodeOf(id), made, Network::kUnbounded);
      made_.push_back({index, made});
    }
    for (const ValueId id : node.outputs) AddValue(id, made);
  }
  void AddNeeded(ValueId id) { network_.AddEdge(NodeOf(id), sink_, Network::kUnbounded); }

  void MarkRunAgain(std::vector<bool>* again) {
    const std::vector<bool> side = network_.SideOfSource(source_, sink_);
    for (const auto& [index, node] : made_) (*again)[index] = !side[static_cast<size_t>(node)];
  }

 private:
  // A value on the sink's side is available in the backward; if its maker is on the source's side, it is kept.
  int AddValue(ValueId id, int made) {
    const int node = network_.AddNode();
    nodes_[id] = node;
    const bool free = graph_.value(id).role != Role::kActivation || kept_anyway_[static_cast<size_t>(id)];
    network_.AddEdge(made, node, free ? 0 : graph_.value(id).type.bytes().v * kMovedPerByte);
    return node;
  }
  // Also accepts values from outside the block: another block's, or a source.
  int NodeOf(ValueId id) {
    const auto it = nodes_.find(id);
    return it != nodes_.end() ? it->second : AddValue(id, source_);
  }

  const Graph& graph_;
  const std::vector<bool>& kept_anyway_;
  Network network_;
  const int source_ = network_.AddNode(), sink_ = network_.AddNode();
  std::map<ValueId, int> nodes_;
  std::vector<std::pair<size_t, int>> made_;
};

}  // namespace

std::vector<bool> CheapToRecompute(const Graph& graph) {
  // Per value: the block whose forward makes it. Values that another block's backward reads are kept in any case, and
  // gathered weights are decided elsewhere (RecomputeSpec::gathered_blocks).
  constexpr int kNotForward = -3;
  std::vector<int> made_in(static_cast<size_t>(graph.num_values()), kNotForward);
  std::vector<bool> kept_anyway(made_in.size(), false);
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kForward) {
      for (const ValueId id : node.outputs) {
        made_in[static_cast<size_t>(id)] = node.block;
        kept_anyway[static_cast<size_t>(id)] =
            node.op == TrafficOp::kAllGather && graph.value(node.inputs[0]).role != Role::kActivation;
      }
    } else {
      for (const ValueId id : node.inputs) {
        if (made_in[static_cast<size_t>(id)] != node.block) kept_anyway[static_cast<size_t>(id)] = true;
      }
    }
  }
  std::map<int, BlockCut> cuts;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.block < 0) continue;
    BlockCut& cut = cuts.try_emplace(node.block, graph, kept_anyway).first->second;
    if (node.phase == Phase::kForward) cut.AddForward(i);
    if (node.phase != Phase::kBackward) continue;
    for (const ValueId id : node.inputs) {
      if (made_in[static_cast<size_t>(id)] != kNotForward) cut.AddNeeded(id);
    }
  }
  std::vector<bool> again(graph.nodes().size(), false);
  for (auto& [block, cut] : cuts) cut.MarkRunAgain(&again);
  return again;
}

}  // namespace temper
