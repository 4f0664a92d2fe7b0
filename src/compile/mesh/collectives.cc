#include "compile/mesh/collectives.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Consecutive nodes of one phase and block: a future segment.
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

// A product d_w_OI does O operations per byte of its x_TI in bf16, and I per byte of its d_y_TO, the values that ranks
// exchange. Below this many operations per byte, it hides too little to pay for waiting on another thread or stream. A
// core of 150 GFLOP/s does 40 operations per byte of a 4 GB/s link; a GPU does ten times as many per byte of its links.
constexpr int64_t kWorthHiding = 64;

// By weight name: elements of the whole weight if its gradient's product can hide a collective, else 0.
std::map<std::string, int64_t, std::less<>> HidingWeights(const Graph& graph) {
  std::map<std::string, int64_t, std::less<>> weights;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& v = graph.value(id);
    if (v.role != Role::kWeight && v.role != Role::kAdapter) continue;
    const Shape& whole = v.shard ? v.shard->global : v.type.shape;
    const bool worth = whole.rank() == 2 && std::min(whole[0], whole[1]) >= kWorthHiding;
    weights[v.name] = worth ? whole.elements() : 0;
  }
  return weights;
}

class Scheduler {
 public:
  Scheduler(Graph graph, const CollectivesSpec& spec)
      : spec_(spec),
        moves_(FindWeightMoves(graph)),
        weights_(HidingWeights(graph)),
        nodes_(std::move(graph.nodes())),
        result_(std::move(graph)) {
    result_.nodes().clear();
    result_.nodes().reserve(nodes_.size());
  }

  Graph Run() {
    const std::vector<temper::Run> runs = RunsOf(nodes_);
    FindUses(runs);
    // Gathers for run r are issued when run r - 1 begins.
    for (size_t r = 0; r < runs.size(); ++r) {
      const size_t first = result_.nodes().size();
      if (r == 0 || !spec_.background) AddGathers(runs[r], runs[r]);
      if (spec_.background && r + 1 < runs.size()) AddGathers(runs[r + 1], runs[r]);
      for (size_t i = runs[r].begin; i < runs[r].end; ++i) {
        if (!moves_.gathers[i] && !moves_.reduces[i] && i != ahead_) result_.AddNode(std::move(nodes_[i]));
      }
      Coalesce(runs[r], runs[r], moves_.reduces);
      if (spec_.background) HideCollectives(runs, r, first);
    }
    return std::move(result_);
  }

 private:
  // Adds the gathers of run `of` to run `at`; they take its phase and block, so they become part of its segment.
  void AddGathers(const temper::Run& of, const temper::Run& at) { Coalesce(of, at, moves_.gathers); }

  void Coalesce(const temper::Run& of, const temper::Run& at, const std::vector<bool>& selected) {
    using Key = std::tuple<int, Op, std::string, int64_t, bool, ElementFormat>;  // turn, op, axes, dim, acc, dtype
    std::map<Key, std::vector<const Node*>> groups;
    std::map<ValueId, int> turn_of;  // per result: nodes that read it, or add to it, have the next turn
    for (size_t i = of.begin; i < of.end; ++i) {
      const Node& node = nodes_[i];
      if (!selected[i]) continue;
      const Attributes& a = node.attributes;
      int turn = 0;
      for (const ValueId id : node.inputs) {
        if (const auto before = turn_of.find(id); before != turn_of.end()) turn = std::max(turn, before->second + 1);
      }
      turn_of[node.outputs[0]] = turn;
      const ElementFormat dtype = result_.value(node.inputs[0]).type.dtype;
      groups[{turn, node.op, a.String("axes"), a.IntOr("dim", 0), a.Flag("acc"), dtype}].push_back(&node);
    }
    const Node& place = nodes_[at.begin];  // phase and block remain valid in moved-from nodes
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
        if (node->attributes.Flag("acc")) accs.push_back(node->inputs[1]);
        all.outputs.push_back(node->outputs[0]);
        if (node->attributes.Has("sizes")) sizes.push_back(node->attributes.Doubles("sizes")[0]);
      }
      all.inputs.insert(all.inputs.end(), accs.begin(), accs.end());
      if (!sizes.empty()) all.attributes.Set("sizes", std::move(sizes));
      if (spec_.background) all.attributes.Set("background", int64_t{1});
      result_.AddNode(std::move(all));
    }
  }

  void FindUses(const std::vector<temper::Run>& runs) {
    last_use_.assign(static_cast<size_t>(result_.num_values()), 0);
    made_in_ = last_use_;
    for (size_t r = 0; r < runs.size(); ++r) {
      for (size_t i = runs[r].begin; i < runs[r].end; ++i) {
        for (const ValueId id : nodes_[i].inputs) last_use_[static_cast<size_t>(id)] = r;
        for (const ValueId id : nodes_[i].outputs) made_in_[static_cast<size_t>(id)] = r;
      }
    }
  }

  // The first collective of run r that may be hidden, if it needs no result of the run: it can be issued early, at the
  // end of the run before. The number of nodes if there is none.
  size_t FindAhead(const std::vector<temper::Run>& runs, size_t r) const {
    for (size_t i = runs[r].begin; i < runs[r].end; ++i) {
      if (!MayBeHidden(nodes_[i]) || moves_.gathers[i] || moves_.reduces[i]) continue;
      const auto& inputs = nodes_[i].inputs;
      const auto before = [&](ValueId id) { return made_in_[static_cast<size_t>(id)] < r; };
      return std::all_of(inputs.begin(), inputs.end(), before) ? i : nodes_.size();
    }
    return nodes_.size();
  }

  // Marks the patient nodes of run r, whose nodes in the result start at `first`: nothing else in the step waits for
  // their results. These are gradients of weights and nodes that only lead to them.
  std::vector<bool> FindPatient(size_t r, size_t first) const {
    std::vector<bool> patient(result_.nodes().size() - first);
    std::vector<bool> awaited(last_use_.size());
    for (size_t k = patient.size(); k-- > 0;) {
      const Node& node = result_.nodes()[first + k];
      patient[k] = !IsTransfer(node.op) && (!IsCollective(node.op) || node.attributes.Flag("background"));
      for (const ValueId id : node.outputs) {
        const auto at = static_cast<size_t>(id);
        const Role role = result_.value(id).role;
        const bool stays = role == Role::kGradient || (role == Role::kActivation && last_use_[at] <= r);
        if (awaited[at] || !stays) patient[k] = false;
      }
      if (patient[k]) continue;
      for (const ValueId id : node.inputs) awaited[static_cast<size_t>(id)] = true;
    }
    return patient;
  }

  static bool MayBeHidden(const Node& node) {
    const bool exchanges =
        node.op == TrafficOp::kAllGather || node.op == TrafficOp::kReduceScatter || node.op == TrafficOp::kAllReduce;
    return exchanges && !node.attributes.Flag("background");
  }

  // The work of a patient node that can hide a collective, in elements of the whole weight whose gradient it makes. The
  // whole is used because ranks of a group must hide the same collectives, but their parts may differ in size.
  int64_t HidingWork(const Node& node) const {
    if (RuleOf(node.op).kind != OpKind::kProduct) return 0;
    // "grad:NAME", or for a gathered weight "grad:NAME.all_gather".
    std::string_view name = result_.value(node.outputs[0]).name;
    name.remove_prefix(std::min(name.find(':') + 1, name.size()));
    for (;;) {
      if (const auto it = weights_.find(name); it != weights_.end()) return it->second;
      const size_t dot = name.rfind('.');
      if (dot == name.npos) return 0;
      name = name.substr(0, dot);
    }
  }

  // Distributes the patient nodes of run r evenly, by work, over its collectives and the first one of the next run.
  void HideCollectives(const std::vector<temper::Run>& runs, size_t r, size_t first) {
    const auto begin = [&] { return result_.nodes().begin() + static_cast<std::ptrdiff_t>(first); };
    if (std::none_of(begin(), result_.nodes().end(), MayBeHidden)) return;
    std::vector<bool> patient = FindPatient(r, first);
    int64_t all = 0, hidden = 0;
    for (size_t k = 0; k < patient.size(); ++k) {
      const Node& node = result_.nodes()[first + k];
      if (patient[k]) {
        all += HidingWork(node);
      } else if (all > 0 && MayBeHidden(node)) {
        ++hidden;
      }
    }
    const bool goes_on = r + 1 < runs.size() && nodes_[runs[r + 1].begin].phase == result_.nodes().back().phase;
    const size_t ahead = goes_on ? FindAhead(runs, r + 1) : nodes_.size();
    if (ahead < nodes_.size()) ++hidden;
    if (hidden == 0 || all == 0) return;
    if (ahead < nodes_.size()) {
      Node node = std::move(nodes_[ahead]);
      node.phase = result_.nodes().back().phase;
      node.block = result_.nodes().back().block;
      result_.AddNode(std::move(node));
      patient.push_back(false);
      ahead_ = ahead;
    }
    std::vector<Node> given(std::make_move_iterator(begin()), std::make_move_iterator(result_.nodes().end()));
    result_.nodes().resize(first);
    size_t next = 0;  // index of the next patient node without a place
    int64_t placed = 0;
    const auto place = [&](size_t end, int64_t until) {
      for (; next < end && placed < until; ++next) {
        if (!patient[next]) continue;
        placed += HidingWork(given[next]);
        result_.AddNode(std::move(given[next]));
      }
    };
    int64_t found = 0, shares = 0;  // of `hidden`, the number reached so far
    for (size_t k = 0; k < given.size(); ++k) {
      if (patient[k]) {
        found += HidingWork(given[k]);
        continue;
      }
      if (found > 0 && MayBeHidden(given[k])) ++shares;
      const int64_t due = (all * shares + hidden - 1) / hidden;
      const bool hides = MayBeHidden(given[k]) && placed < std::min(found, due);
      if (hides) {
        given[k].attributes.Set("background", int64_t{1});
        given[k].attributes.Set("soon", int64_t{1});
      }
      result_.AddNode(std::move(given[k]));
      if (hides) place(k, due);
    }
    place(given.size(), std::numeric_limits<int64_t>::max());
  }

  const CollectivesSpec& spec_;
  const WeightMoves moves_;
  const std::map<std::string, int64_t, std::less<>> weights_;  // HidingWeights
  std::vector<Node> nodes_;                 // of the given graph; nodes already in the result are moved out
  std::vector<size_t> last_use_, made_in_;  // per value: the last run that reads it, and the run that makes it
  size_t ahead_ = std::numeric_limits<size_t>::max();  // the node that was issued early, in the run before its own
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
    if (nodes[i].op != TrafficOp::kAllGather) continue;
    const ValueId from = nodes[i].inputs[0];
    moves.gathers[i] = graph.value(graph.Root(from)).role != Role::kActivation || gathered[static_cast<size_t>(from)];
    gathered[static_cast<size_t>(nodes[i].outputs[0])] = moves.gathers[i];
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i].op != TrafficOp::kReduceScatter && nodes[i].op != TrafficOp::kAllReduce) continue;
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
