#include "compile/touches.h"

#include <algorithm>

namespace temper {
namespace {

size_t At(ValueId id) {
  return static_cast<size_t>(id);
}

Tier HomeByName(const Graph& graph, const Homes& homes, ValueId id) {
  const auto it = homes.find(graph.value(graph.Root(id)).name);
  return it == homes.end() ? Tier::kDevice : it->second;
}

}  // namespace

Touches::Touches(const Graph& graph, const std::vector<PipelinePart>& parts, const Homes& homes,
                 std::optional<Tier> activations)
    : graph_(graph),
      activations_(activations),
      part_begin_(graph.nodes().size(), 0),
      part_end_(graph.nodes().size(), static_cast<int>(graph.nodes().size())) {
  for (const PipelinePart& part : parts) {
    for (size_t i = part.begin; i < part.end; ++i) {
      part_begin_[i] = static_cast<int>(part.begin);
      part_end_[i] = static_cast<int>(part.end);
    }
  }
  FindProcessors(homes);
  FindTouches();
  FindHomes(homes);
}

// States are updated where they are, by the host where that is not the device; so are sums over what lies there.
void Touches::FindProcessors(const Homes& homes) {
  const auto& nodes = graph_.nodes();
  processor_.assign(nodes.size(), Tier::kDevice);
  bool all_on_host = true, sums_only = true;
  std::optional<size_t> clip;
  std::vector<bool> is_sum(static_cast<size_t>(graph_.num_values()), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.op != Op::kAdamw && node.op != Op::kSumSquares && node.op != Op::kClip) continue;
    constexpr int kMoment = 2;  // of adamw's inputs
    if (node.op == Op::kClip) {
      clip = i;
      for (size_t k = 0; k + 1 < node.inputs.size(); ++k) sums_only &= is_sum[At(node.inputs[k])];
      continue;
    }
    const Tier home = HomeByName(graph_, homes, node.inputs[node.op == Op::kAdamw ? kMoment : 0]);
    if (home != Tier::kDevice) processor_[i] = Tier::kHost;
    if (node.op == Op::kAdamw) all_on_host &= home != Tier::kDevice;
    if (node.op == Op::kSumSquares) is_sum[At(node.outputs[0])] = true;
  }
  if (clip && all_on_host && sums_only) processor_[*clip] = Tier::kHost;
}

void Touches::FindTouches() {
  touches_.resize(static_cast<size_t>(graph_.num_values()));
  for (int i = 0; i < std::ssize(graph_.nodes()); ++i) {
    const Node& node = graph_.nodes()[static_cast<size_t>(i)];
    const auto touch = [&](ValueId id, bool writes) {
      std::vector<Touch>& list = touches_[At(graph_.Root(id))];
      if (list.empty() || list.back().node != i) list.push_back({i});
      (writes ? list.back().writes : list.back().reads) = true;
    };
    for (ValueId id : node.inputs) touch(id, false);
    for (ValueId id : node.outputs) touch(id, true);
  }
}

void Touches::FindHomes(const Homes& homes) {
  home_.assign(touches_.size(), Tier::kDevice);
  for (ValueId id = 0; id < graph_.num_values(); ++id) {
    const std::vector<Touch>& touches = touches_[At(id)];
    if (graph_.Root(id) != id) continue;
    switch (graph_.value(id).role) {
      case Role::kWeight:
      case Role::kAdapter:
      case Role::kGradient:
      case Role::kOptimizerState:
        home_[At(id)] = HomeByName(graph_, homes, id);
        break;
      case Role::kActivation:
      case Role::kOutput:
        if (!touches.empty()) home_[At(id)] = ProcessorOf(touches[0]);
        break;
      case Role::kInput:
      case Role::kConstant:
      case Role::kCache:
        if (!touches.empty() &&
            std::all_of(touches.begin(), touches.end(), [&](const Touch& t) { return ProcessorOf(t) == Tier::kHost; }))
          home_[At(id)] = Tier::kHost;
        break;
    }
    if (!touches.empty() && Leaves(id)) home_[At(id)] = Tier::kHost;
  }
}

bool Touches::IsTransferred(ValueId root) const {
  return std::any_of(Of(root).begin(), Of(root).end(), [&](const Touch& t) {
    const Node& node = graph_.nodes()[static_cast<size_t>(t.node)];
    return IsTransfer(node.op) && node.phase != Phase::kUpdate;
  });
}

bool Touches::IsInSlot(ValueId root) const {
  return !SamePart(Of(root).front().node, Of(root).back().node) || IsTransferred(root);
}

bool Touches::Leaves(ValueId id) const {
  if (activations_ == Tier::kDevice || graph_.value(id).role != Role::kActivation || IsTransferred(id)) return false;
  const std::vector<Touch>& touches = touches_[At(id)];
  const auto phase = [&](const Touch& t) { return graph_.nodes()[static_cast<size_t>(t.node)].phase; };
  return std::all_of(touches.begin(), touches.end(), [&](const Touch& t) { return ProcessorOf(t) == Tier::kDevice; }) &&
         phase(touches.front()) == Phase::kForward && phase(touches.back()) == Phase::kBackward;
}

bool Touches::IsAway(ValueId root) const {
  return std::any_of(touches_[At(root)].begin(), touches_[At(root)].end(),
                     [&](const Touch& t) { return ProcessorOf(t) != home_[At(root)]; });
}

}  // namespace temper
