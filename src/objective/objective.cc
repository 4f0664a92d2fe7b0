#include "objective/objective.h"

#include <algorithm>

#include "base/check.h"
#include "graph/named_ops.h"

namespace temper {

#define TEMPER_OBJECTIVE(name) const ObjectiveRule& name();
#include "objective/objective_list.inc"
#undef TEMPER_OBJECTIVE

ValueId Tail::Column(const ColumnSpec& column) const {
  const bool stated = std::any_of(rule.columns.begin(), rule.columns.end(), [&](const ColumnSpec& c) {
    return std::string_view(c.name) == column.name && c.dtype == column.dtype;
  });
  TEMPER_CHECK(stated) << "objective " << rule.name << " does not state its column " << column.name;
  if (const ValueId known = f.FindInput(column.name); known != kNoValue) return known;
  return f.TokenInput(column.name, column.dtype, tokens);
}

Tail::HeadCall Tail::Head(const ColumnSpec& target) const {
  HeadCall call = {.inputs = {x_TD, w_VD, Column(target)}, .attributes = {}};
  if (softcap != 0) call.attributes.Set("softcap", softcap);
  if (bias_V != kNoValue) {
    call.inputs.push_back(bias_V);
    call.attributes.Set("bias", int64_t{1});
  }
  return call;
}

ValueId Tail::Logprob(const char* output, bool stored, const ColumnSpec& target) const {
  HeadCall head = Head(target);
  const Role role = stored ? Role::kOutput : Role::kActivation;
  return f.Add(Op::kTokenLogprob, std::move(head.inputs), std::move(head.attributes), output, role)[0];
}

ValueId Tail::Logits(Role role) const {
  const Attributes in_f32 = {{"acc", int64_t{0}}, {"bias", int64_t{0}}, {"out", std::string("f32")}};
  return f.Add(Op::kLinear, {x_TD, w_VD}, in_f32, kClassLogitsOutput, role)[0];
}

ObjectiveGraph ObjectiveRule::graph(ProgramKind kind) const {
  if (kind == ProgramKind::kScore && score != nullptr) return {kind, score};
  for (const ObjectiveGraph& one : graphs) {
    if (one.kind == kind) return one;
  }
  TEMPER_CHECK(false) << "objective " << name << " has no graph " << ProgramName(kind);
  return graphs.front();
}

bool ObjectiveRule::has(ProgramKind kind) const {
  return std::any_of(graphs.begin(), graphs.end(), [&](const ObjectiveGraph& one) { return one.kind == kind; });
}

std::span<const ObjectiveRule* const> Objectives() {
  static const ObjectiveRule* const kAll[] = {
#define TEMPER_OBJECTIVE(name) &name(),
#include "objective/objective_list.inc"
#undef TEMPER_OBJECTIVE
  };
  return kAll;
}

std::string TasksThatRead(std::initializer_list<RowUse> uses, std::string_view last) {
  std::vector<std::string_view> names;
  for (const ObjectiveRule* const rule : Objectives()) {
    if (std::find(uses.begin(), uses.end(), rule->rows) != uses.end()) names.push_back(rule->name);
  }
  std::string text(names.front());
  for (size_t k = 1; k < names.size(); ++k) {
    text += k + 1 < names.size() ? ", " : " " + std::string(last) + " ";
    text += names[k];
  }
  return text;
}

}  // namespace temper
