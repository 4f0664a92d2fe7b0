#include "graph/update_rule.h"

#include <array>

#include "base/check.h"
#include "graph/rule.h"

namespace temper {
namespace {

// Inputs beside the tensors: clip and scalars.
constexpr size_t kOtherInputs = 2;

}  // namespace

bool UpdateRule::elementwise() const {
  return RuleOf(op).kind == OpKind::kElementwise;
}

std::vector<const UpdateState*> UpdateRule::StatesOf(const Attributes& attributes) const {
  std::vector<const UpdateState*> present;
  for (const UpdateState& state : states) {
    if (state.flag == nullptr || attributes.Flag(state.flag)) present.push_back(&state);
  }
  return present;
}

std::span<const UpdateRule* const> UpdateRules() {
  static constexpr std::array<const UpdateRule*, 2> kRules = {&kAdamwUpdate, &kSgdUpdate};
  return kRules;
}

const UpdateRule* UpdateRuleOf(Op op) {
  for (const UpdateRule* rule : UpdateRules()) {
    if (rule->op == op) return rule;
  }
  return nullptr;
}

UpdateOperands::UpdateOperands(const Node& node) : states_(node.inputs.size() - kFirstState - kOtherInputs) {
  TEMPER_CHECK(UpdateRuleOf(node.op) != nullptr) << ToString(node.op) << " updates nothing";
}

}  // namespace temper
