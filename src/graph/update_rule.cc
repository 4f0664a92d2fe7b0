#include "graph/update_rule.h"

#include <algorithm>

#include "base/check.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "tensor/dynamic_blocks.h"

namespace temper {
namespace {

// Inputs beside the tensors: clip and scalars.
constexpr size_t kOtherInputs = 2;

Shape Without(const Shape& shape, int dim) {
  TEMPER_CHECK(dim >= 0) << shape.ToString();
  Shape rest;
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != dim) rest.Append(shape[d]);
  }
  return rest;
}

}  // namespace

TensorType UpdateState::TypeOf(const Shape& weight) const {
  switch (of) {
    case Of::kElementInBlocks:
      return DynamicBlocksOf(weight);
    case Of::kRow:
      return {DType::kF32, Without(weight, weight.rank() - 1)};
    case Of::kColumn:
      return {DType::kF32, Without(weight, weight.rank() - 2)};
    case Of::kElement:
      break;
  }
  return {DType::kF32, weight};
}

Shape UpdateState::BeginOf(const Shape& whole, const Shape& begin) const {
  switch (of) {
    case Of::kElementInBlocks:
      return BeginOfBlocks(whole, begin);
    case Of::kRow:
      return Without(begin, begin.rank() - 1);
    case Of::kColumn:
      return Without(begin, begin.rank() - 2);
    case Of::kElement:
      break;
  }
  return begin;
}

Attributes UpdateRule::Settings(std::span<const std::pair<std::string_view, double>> changed) const {
  Attributes attributes;
  size_t known = 0;
  for (const UpdateSetting& setting : settings) {
    double number = setting.fallback;
    for (const auto& [attribute, value] : changed) {
      if (attribute != setting.attribute) continue;
      number = value;
      ++known;
    }
    const bool flag = setting.range == UpdateSetting::Range::kFlag;
    attributes.Set(setting.attribute, flag ? AttributeValue(int64_t{number != 0}) : AttributeValue(number));
  }
  TEMPER_CHECK(known == changed.size()) << name << " does not have all of these settings";
  if (derive != nullptr) derive(attributes);
  return attributes;
}

Attributes UpdateRule::SettingsFor(Attributes settings, const Shape& value) const {
  if (derive_of_shape != nullptr) derive_of_shape(settings, value);
  return settings;
}

bool UpdateRule::elementwise() const {
  return RuleOf(op).kind == OpKind::kElementwise;
}

bool UpdateRule::in_blocks() const {
  return std::any_of(states.begin(), states.end(),
                     [](const UpdateState& state) { return state.of == UpdateState::Of::kElementInBlocks; });
}

const UpdateRule* UpdateRule::others() const {
  return rest ? UpdateRuleOf(*rest) : nullptr;
}

std::vector<const UpdateState*> UpdateRule::StatesOf(const Attributes& attributes) const {
  std::vector<const UpdateState*> present;
  for (const UpdateState& state : states) {
    if (state.flag == nullptr || attributes.Flag(state.flag)) present.push_back(&state);
  }
  return present;
}

std::span<const UpdateRule* const> UpdateRules() {
  static const std::vector<const UpdateRule*> rules = [] {
    std::vector<const UpdateRule*> found;
    for (int op = 0; op < NumOps(); ++op) {
      const UpdateRule* const rule = UpdateRuleOf(static_cast<Op>(op));
      if (rule != nullptr && !rule->averages) found.push_back(rule);
    }
    return found;
  }();
  return rules;
}

std::vector<const UpdateState*> UpdateStates() {
  std::vector<const UpdateState*> states = {&kAverageState};
  for (const UpdateRule* rule : UpdateRules()) {
    for (const UpdateState& state : rule->states) states.push_back(&state);
  }
  return states;
}

const UpdateRule* UpdateRuleOf(Op op) {
  return RuleOf(op).update;
}

Attributes UpdateSettings(Op op, std::initializer_list<std::pair<std::string_view, double>> changed) {
  return UpdateRuleOf(op)->Settings(std::span(changed.begin(), changed.size()));
}

const UpdateRule& DefaultUpdateRule() {
  return *UpdateRuleOf(Op::kAdamw);
}

UpdateOperands::UpdateOperands(const Node& node) : states_(node.inputs.size() - kFirstState - kOtherInputs) {
  TEMPER_CHECK(UpdateRuleOf(node.op) != nullptr) << ToString(node.op) << " updates nothing";
}

}  // namespace temper
