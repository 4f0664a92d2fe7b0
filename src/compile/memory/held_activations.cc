#include "compile/memory/held_activations.h"

#include <algorithm>

namespace temper {
namespace {

// Per block: bytes of activations that its forward makes and the backward of any block reads.
std::vector<Bytes> HeldOfBlocks(const Graph& graph) {
  const auto& nodes = graph.nodes();
  const auto is_backward = [](const Node& node) { return node.phase == Phase::kBackward; };
  const auto backward = std::find_if(nodes.begin(), nodes.end(), is_backward);
  std::vector<int> maker(static_cast<size_t>(graph.num_values()), -1);  // its block
  std::vector<Bytes> held;
  for (auto node = nodes.begin(); node != backward; ++node) {
    if (node->block < 0) continue;
    held.resize(std::max(held.size(), static_cast<size_t>(node->block) + 1));
    for (const ValueId id : node->outputs) {
      const Value& value = graph.value(id);
      if (value.role == Role::kActivation && value.updates == kNoValue) maker[static_cast<size_t>(id)] = node->block;
    }
  }
  for (auto node = backward; node != nodes.end(); ++node) {
    for (const ValueId id : node->inputs) {
      int& block = maker[static_cast<size_t>(id)];
      if (block >= 0) held[static_cast<size_t>(block)] += graph.value(id).type.bytes();
      block = -1;  // once
    }
  }
  return held;
}

}  // namespace

HeldActivations::HeldActivations(const StepGraphs& step) {
  if (!step.trains() || step.train().pipeline) return;
  from_ = HeldOfBlocks(step.train().front());
  for (size_t k = from_.size(); k-- > 1;) from_[k - 1] += from_[k];
}

Bytes HeldActivations::Least(int blocks) const {
  return static_cast<size_t>(blocks) < from_.size() ? from_[static_cast<size_t>(blocks)] : Bytes{};
}

}  // namespace temper
