// What the rules of all optimizers' ops share (graph/update_rule.h): their types, what they overwrite, their
// flow.
#pragma once

#include "graph/ops/operand_types.h"
#include "graph/rule.h"
#include "graph/update_rule.h"

namespace temper {

// REQUIRES: `op` has an UpdateRule. `wanted` as in BadOperands.
Result<Types> InferUpdate(Op op, const char* wanted, const Types& in, const Attributes& attributes);

// OpRule::overwrites. The weight in compute precision is written, not read: its old bytes are not an operand.
int UpdateOverwrites(const Attributes& attributes, int num_inputs, int output);

}  // namespace temper
