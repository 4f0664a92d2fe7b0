#include "compile/collectives.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace temper {
namespace {

// Nodes of one phase and block that stand together: what a segment will be.
struct Run {
  size_t begin = 0, end = 0;
};

std::vector<Run> RunsOf(const std::vector<Node>& nodes) {
  std::vector<Run> runs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool same = i > 0 && nodes[i].phase == nodes[i - 1].phase && nodes[i].block == nodes[i - 1].block;
    if (!same) runs.push_back({i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

class Scheduler {
 public:
  Scheduler(Graph graph, const CollectivesSpec& spec)
      : spec_(spec), moves_(FindWeightMoves(graph)), nodes_(std::move(graph.nodes())), result_(std::move(graph)) {
    result_.nodes().clear();
    result_.nodes().reserve(nodes_.size());
  }

  Graph Run() {
    const std::vector<temper::Run> runs = RunsOf(nodes_);
    // What is gathered for run r is issued when run r - 1 begins.
    for (size_t r = 0; r < runs.size(); ++r) {
      if (r == 0 || !spec_.background) AddGathers(runs[r], runs[r]);
      if (spec_.background && r + 1 < runs.size()) AddGathers(runs[r + 1], runs[r]);
      for (size_t i = runs[r].begin; i < runs[r].end; ++i) {
        if (!moves_.gathers[i] && !moves_.reduces[i]) result_.AddNode(std::move(nodes_[i]));
      }
      Coalesce(runs[r], runs[r], moves_.reduces);
    }
    return std::move(result_);
  }

 private:
  // The gathers of run `of`, as part of run `at`, whose phase and block they take: they stand in its segment.
  void AddGathers(const temper::Run& of, const temper::Run& at) { Coalesce(of, at, moves_.gathers); }

  void Coalesce(const temper::Run& of, const temper::Run& at, const std::vector<bool>& selected) {
    using Key = std::tuple<int, std::string, int64_t, int64_t, DType>;  // turn, axes, dim, acc, dtype
    std::map<Key, std::vector<const Node*>> groups;
    std::map<ValueId, int> turn_of;  // of what they give: who takes it, or adds to it, has the turn after
    for (size_t i = of.begin; i < of.end; ++i) {
      const Node& node = nodes_[i];
      if (!selected[i]) continue;
      const bool acc = node.attributes.IntOr("acc", 0) != 0;
      int turn = 0;
      for (const ValueId id : node.inputs) {
        if (const auto before = turn_of.find(id); before != turn_of.end()) turn = std::max(turn, before->second + 1);
      }
      turn_of[node.outputs[0]] = turn;
      groups[{turn, node.attributes.String("axes"), node.attributes.Int("dim"), acc,
              result_.value(node.inputs[0]).type.dtype}]
          .push_back(&node);
    }
    const Node& place = nodes_[at.begin];  // whose phase and block stay where it is moved from
    for (const auto& [key, members] : groups) {
      Node all = *members[0];
      all.inputs.clear();
      all.outputs.clear();
      all.phase = place.phase;
      all.block = place.block;
      std::vector<ValueId> accs;
      std::vector<double> sizes;
      for (const Node* node : members) {
        all.inputs.push_back(node->inputs[0]);
        if (std::get<3>(key) != 0) accs.push_back(node->inputs[1]);
        all.outputs.push_back(node->outputs[0]);
        sizes.push_back(node->attributes.Doubles("sizes")[0]);
      }
      all.inputs.insert(all.inputs.end(), accs.begin(), accs.end());
      all.attributes.Set("sizes", std::move(sizes));
      if (spec_.background) all.attributes.Set("background", int64_t{1});
      result_.AddNode(std::move(all));
    }
  }

  const CollectivesSpec& spec_;
  const WeightMoves moves_;
  std::vector<Node> nodes_;  // of the given graph; those that have their place in the result are moved from
  Graph result_;
};

}  // namespace

WeightMoves FindWeightMoves(const Graph& graph) {
  const auto& nodes = graph.nodes();
  WeightMoves moves{std::vector<bool>(nodes.size()), std::vector<bool>(nodes.size())};
  std::vector<bool> gathered(static_cast<size_t>(graph.num_values())), reduced(gathered);
  std::vector<int> users(gathered.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].inputs) ++users[static_cast<size_t>(id)];
    if (nodes[i].op != Op::kAllGather) continue;
    const ValueId from = nodes[i].inputs[0];
    moves.gathers[i] = graph.value(graph.Root(from)).role != Role::kActivation || gathered[static_cast<size_t>(from)];
    gathered[static_cast<size_t>(nodes[i].outputs[0])] = moves.gathers[i];
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i].op != Op::kReduceScatter) continue;
    const ValueId to = nodes[i].outputs[0];
    moves.reduces[i] = graph.value(to).role == Role::kGradient || reduced[static_cast<size_t>(to)];
    const ValueId term = nodes[i].inputs[0];
    reduced[static_cast<size_t>(term)] = moves.reduces[i] && users[static_cast<size_t>(term)] == 1;
  }
  return moves;
}

Graph ScheduleCollectives(Graph graph, const CollectivesSpec& spec) {
  return Scheduler(std::move(graph), spec).Run();
}

}  // namespace temper
