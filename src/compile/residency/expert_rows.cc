#include "compile/residency/expert_rows.h"

#include "graph/named_ops.h"

namespace temper {

ValueId RowsOfExperts(const Graph& graph, const Node& node, ValueId stack) {
  if (node.op != Op::kGroupedLinear && node.op != Op::kGroupedLinearDx) return kNoValue;
  if (node.attributes.Has("split")) return kNoValue;  // rows name experts of all ranks of ep, the stack has its own
  constexpr size_t kWeight = 1, kExpert = 2;          // graph/ops/grouped_linear.cc
  const TensorType& type = graph.value(node.inputs[kWeight]).type;
  const ValueId rows = node.inputs[kExpert];
  const bool some = graph.value(rows).type.shape.elements() < type.shape[0];
  return graph.Root(node.inputs[kWeight]) == graph.Root(stack) && some && !type.packed() ? rows : kNoValue;
}

}  // namespace temper
