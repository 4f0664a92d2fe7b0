#include "compile/residency/touches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compile/layout/layout.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

size_t At(ValueId id) {
  return static_cast<size_t>(id);
}

}  // namespace

Touches::Touches(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec)
    : graph_(graph),
      activations_(spec.activations),
      update_part_(spec.update_part),
      roots_(RootsOf(graph)),
      part_begin_(graph.nodes().size(), 0),
      part_end_(graph.nodes().size(), static_cast<int>(graph.nodes().size())) {
  TEMPER_CHECK(update_part_ > 0);
  for (const PipelinePart& part : parts) {
    for (size_t i = part.begin; i < part.end; ++i) {
      part_begin_[i] = static_cast<int>(part.begin);
      part_end_[i] = static_cast<int>(part.end);
    }
  }
  FindNamed(*spec.homes);
  FindProcessors();
  FindCut(spec);
  FindTouches();
  FindHomes();
}

void Touches::FindNamed(const Homes& homes) {
  named_.assign(roots_.size(), Tier::kDevice);
  if (homes.empty()) return;
  for (ValueId id = 0; id < graph_.num_values(); ++id) {
    const Value& value = graph_.value(id);
    if (roots_[At(id)] != id || value.role == Role::kActivation) continue;
    const auto it = homes.find(value.name);
    if (it != homes.end()) named_[At(id)] = it->second;
  }
}

// States are updated where they live, by the host unless that is the device; the same for sums over values there.
void Touches::FindProcessors() {
  const auto& nodes = graph_.nodes();
  processor_.assign(nodes.size(), Tier::kDevice);
  bool all_on_host = true, sums_only = true;
  std::optional<size_t> clip;
  std::vector<bool> is_sum(static_cast<size_t>(graph_.num_values()), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const bool updates = UpdateRuleOf(node.op) != nullptr;
    if (!updates && node.op != Op::kSumSquares && node.op != Op::kClip) continue;
    if (node.op == Op::kClip) {
      clip = i;
      for (size_t k = 0; k + 1 < node.inputs.size(); ++k) sums_only &= is_sum[At(node.inputs[k])];
      continue;
    }
    const Tier home = NamedHomeOf(node.inputs[updates ? UpdateOperands(node).home() : 0]);
    // A gradient on the disk is summed on the device, which has room for it: it was made there.
    const bool at_host = updates ? home != Tier::kDevice : home == Tier::kHost;
    if (at_host) processor_[i] = Tier::kHost;
    if (updates) all_on_host &= home != Tier::kDevice;
    if (node.op == Op::kSumSquares) is_sum[At(node.outputs[0])] = true;
  }
  if (clip && all_on_host && sums_only) processor_[*clip] = Tier::kHost;
}

// Values at the host are not processed in parts: kernels there work on whole values.
void Touches::FindCut(const ResidencySpec& spec) {
  cut_.assign(processor_.size(), false);
  for (size_t i = 0; i < cut_.size(); ++i) {
    const Node& node = graph_.nodes()[i];
    const UpdateRule* const rule = UpdateRuleOf(node.op);
    if (rule == nullptr || !rule->elementwise()) continue;
    const UpdateOperands operands(node);
    const ValueId state = node.inputs[operands.home()];
    if (NamedHomeOf(state) != Tier::kDisk) continue;
    const auto whole = [&](ValueId id) { return NamedHomeOf(id) == Tier::kHost; };
    cut_[i] =
        graph_.value(state).type.shape.elements() > spec.update_part &&
        std::none_of(node.inputs.begin(), node.inputs.begin() + static_cast<ptrdiff_t>(operands.tensors()), whole) &&
        std::none_of(node.outputs.begin(), node.outputs.end(), whole);
  }
}

void Touches::FindTouches() {
  const auto& nodes = graph_.nodes();
  // First how many there are of each root.
  first_.assign(roots_.size() + 1, 0);
  std::vector<int> latest(roots_.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const auto* list : {&nodes[i].inputs, &nodes[i].outputs}) {
      for (const ValueId id : *list) {
        if (std::exchange(latest[At(RootOf(id))], static_cast<int>(i)) != static_cast<int>(i)) ++first_[At(RootOf(id))];
      }
    }
  }
  std::exclusive_scan(first_.begin(), first_.end(), first_.begin(), size_t{0});
  touches_.resize(first_.back());
  std::vector<size_t> next(first_.begin(), first_.end() - 1);
  for (int i = 0; i < std::ssize(nodes); ++i) {
    const Node& node = nodes[static_cast<size_t>(i)];
    const auto touch = [&](ValueId id, bool in_parts, bool writes) {
      const size_t root = At(RootOf(id));
      const bool fresh = next[root] == first_[root] || touches_[next[root] - 1].node != i;
      if (fresh) touches_[next[root]++] = {.node = i, .on = in_parts ? NamedHomeOf(id) : ProcessorOf(i)};
      Touch& of_node = touches_[next[root] - 1];
      (writes ? of_node.writes : of_node.reads) = true;
    };
    const size_t in_parts = IsCut(i) ? UpdateOperands(node).tensors() : 0;
    for (size_t k = 0; k < node.inputs.size(); ++k) touch(node.inputs[k], k < in_parts, false);
    for (ValueId id : node.outputs) touch(id, IsCut(i), true);
  }
}

void Touches::FindHomes() {
  home_.assign(roots_.size(), Tier::kDevice);
  for (ValueId id = 0; id < graph_.num_values(); ++id) {
    if (RootOf(id) != id) continue;
    const std::span<const Touch> touches = Of(id);
    switch (graph_.value(id).role) {
      case Role::kWeight:
      case Role::kAdapter:
      case Role::kGradient:
      case Role::kOptimizerState:
        home_[At(id)] = named_[At(id)];
        break;
      case Role::kActivation:
      case Role::kOutput:
        if (!touches.empty()) home_[At(id)] = touches[0].on;
        break;
      case Role::kInput:
      case Role::kConstant:
      case Role::kCache:
        if (!touches.empty() &&
            std::all_of(touches.begin(), touches.end(), [&](const Touch& t) { return t.on == Tier::kHost; }))
          home_[At(id)] = Tier::kHost;
        break;
    }
    if (!touches.empty() && Leaves(id)) home_[At(id)] = Tier::kHost;
  }
}

Bytes Touches::CopiesOfCut(int node) const {
  const Node& update = graph_.nodes()[static_cast<size_t>(node)];
  const UpdateOperands operands(update);
  Bytes of_element{};
  const auto add = [&](ValueId id) { of_element += Bytes{SizeOf(graph_.value(id).type.dtype)}; };
  for (size_t k = 0; k < operands.tensors(); ++k) add(update.inputs[k]);
  // The new weight, beside the states that are updated in place.
  for (size_t k = operands.replacing(); k < update.outputs.size(); ++k) add(update.outputs[k]);
  const int64_t elements = graph_.value(update.inputs[0]).type.shape.elements();
  return UpdateAtHost(of_element * elements, of_element, update_part_);
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
  const std::span<const Touch> touches = Of(id);
  const auto phase = [&](const Touch& t) { return graph_.nodes()[static_cast<size_t>(t.node)].phase; };
  // A value processed in parts must be at home for it.
  const auto needs_it_there = [&](const Touch& t) { return t.on != Tier::kDevice || IsCut(t.node); };
  return std::none_of(touches.begin(), touches.end(), needs_it_there) && phase(touches.front()) == Phase::kForward &&
         phase(touches.back()) == Phase::kBackward;
}

bool Touches::IsAway(ValueId root) const {
  return std::any_of(Of(root).begin(), Of(root).end(), [&](const Touch& t) { return t.on != home_[At(root)]; });
}

Bytes UpdateAtHost(Bytes whole, Bytes of_element, int64_t update_part) {
  return std::min(whole, of_element * update_part * kPartsAtHost);
}

}  // namespace temper
