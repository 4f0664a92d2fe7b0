#include "graph/ops/rules.h"

namespace temper {

const OpRule& RuleOf(Op op) {
  static constexpr const OpRule* kRules[] = {
#define TEMPER_OP(name, text, by) &k##name##Rule,
#include "graph/op_list.inc"
  };
  return *kRules[static_cast<size_t>(op)];
}

}  // namespace temper
