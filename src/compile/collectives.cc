#include "compile/collectives.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace temper {
namespace {

bool IsPersistent(const Graph& graph, ValueId id) {
  return graph.value(graph.Root(id)).role != Role::kActivation;
}
bool GathersWeight(const Graph& graph, const Node& node) {
  return node.op == Op::kAllGather && IsPersistent(graph, node.inputs[0]);
}
bool ReducesGradient(const Graph& graph, const Node& node) {
  return node.op == Op::kReduceScatter && graph.value(node.outputs[0]).role == Role::kGradient;
}

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
  Scheduler(const Graph& graph, const CollectivesSpec& spec) : graph_(graph), spec_(spec) {}

  Graph Run() {
    for (ValueId id = 0; id < graph_.num_values(); ++id) result_.AddValue(graph_.value(id));
    const std::vector<temper::Run> runs = RunsOf(graph_.nodes());
    // What is gathered for run r is issued when run r - 1 begins.
    for (size_t r = 0; r < runs.size(); ++r) {
      if (r == 0 || !spec_.background) AddGathers(runs[r], runs[r]);
      if (spec_.background && r + 1 < runs.size()) AddGathers(runs[r + 1], runs[r]);
      for (size_t i = runs[r].begin; i < runs[r].end; ++i) {
        const Node& node = graph_.nodes()[i];
        if (!GathersWeight(graph_, node) && !ReducesGradient(graph_, node)) result_.AddNode(node);
      }
      Coalesce(runs[r], runs[r], [&](const Node& node) { return ReducesGradient(graph_, node); });
    }
    return std::move(result_);
  }

 private:
  // The gathers of run `of`, as part of run `at`, whose phase and block they take: they stand in its segment.
  void AddGathers(const temper::Run& of, const temper::Run& at) {
    Coalesce(of, at, [&](const Node& node) { return GathersWeight(graph_, node); });
  }

  template <class Selects>
  void Coalesce(const temper::Run& of, const temper::Run& at, const Selects& selects) {
    using Key = std::tuple<int, std::string, int64_t, int64_t, DType>;  // turn, axes, dim, acc, dtype
    std::map<Key, std::vector<const Node*>> groups;
    std::map<ValueId, int> turn_of;  // of gradients: what adds to one takes the turn after it
    for (size_t i = of.begin; i < of.end; ++i) {
      const Node& node = graph_.nodes()[i];
      if (!selects(node)) continue;
      const bool acc = node.attributes.IntOr("acc", 0) != 0;
      const auto before = acc ? turn_of.find(node.inputs[1]) : turn_of.end();
      const int turn = before == turn_of.end() ? 0 : before->second + 1;
      turn_of[node.outputs[0]] = turn;
      groups[{turn, node.attributes.String("axes"), node.attributes.Int("dim"), acc,
              graph_.value(node.inputs[0]).type.dtype}]
          .push_back(&node);
    }
    const Node& place = graph_.nodes()[at.begin];
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

  const Graph& graph_;
  const CollectivesSpec& spec_;
  Graph result_;
};

}  // namespace

Graph ScheduleCollectives(const Graph& graph, const CollectivesSpec& spec) {
  return Scheduler(graph, spec).Run();
}

}  // namespace temper
