#include "graph/graph.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace temper {
namespace {

constexpr std::array<std::string_view, 9> kRoleNames = {
    "input", "output", "constant", "weight", "adapter", "activation", "gradient", "optimizer_state", "cache"};
constexpr std::array<std::string_view, 3> kPhaseNames = {"forward", "backward", "update"};

template <class E, size_t N>
std::optional<E> ParseName(const std::array<std::string_view, N>& names, std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view ToString(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}
std::optional<Role> ParseRole(std::string_view text) {
  return ParseName<Role>(kRoleNames, text);
}
std::string_view ToString(Phase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}
std::optional<Phase> ParsePhase(std::string_view text) {
  return ParseName<Phase>(kPhaseNames, text);
}

std::string NameOfBlock(int block) {
  if (block == kBlockBefore) return "before the blocks";
  if (block == kBlockAfter) return "after the blocks";
  return "block " + std::to_string(block);
}
std::string OfBlock(int block) {
  return (block >= 0 ? "of " : "") + NameOfBlock(block);
}

bool DecaysByDefault(Role role, const Shape& shape) {
  return (role == Role::kWeight || role == Role::kAdapter) && shape.rank() >= 2;
}

ValueId Graph::AddValue(Value value) {
  const ValueId id = num_values();
  values_.push_back(std::move(value));
  return id;
}

void Graph::Unknown(ValueId id) const {
  TEMPER_CHECK(false) << "value %" << id << " of " << num_values();
  std::abort();
}

ValueId Graph::FindSource(std::string_view name) const {
  const auto it = std::find_if(values_.begin(), values_.end(), [&](const Value& v) { return v.name == name; });
  return it == values_.end() ? kNoValue : static_cast<ValueId>(it - values_.begin());
}

std::vector<int> BlocksOfFirstUse(const Graph& graph) {
  std::vector<int> blocks(static_cast<size_t>(graph.num_values()), kBlockBefore);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    for (const ValueId id : node->inputs) blocks[static_cast<size_t>(id)] = node->block;
  }
  return blocks;
}

}  // namespace temper
