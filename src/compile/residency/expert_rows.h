// expert_rows: which nodes read only some matrices of a stack of experts.
#pragma once

#include "graph/graph.h"

namespace temper {

// The value that says which expert each of the node's rows has, if these are fewer than the experts, so that it reads
// only some of the matrices of `stack`, one of its operands; else kNoValue.
ValueId RowsOfExperts(const Graph& graph, const Node& node, ValueId stack);

}  // namespace temper
