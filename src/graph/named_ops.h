// The enumerators of Op, one for each line of graph/op_list.inc. named_ops.cc also holds what op.h declares.
#pragma once

#include "graph/op.h"

namespace temper {

enum class Op : unsigned char {
#define TEMPER_OP(name, text, by) k##name,
#include "graph/op_list.inc"
};

inline constexpr int kNumOps = 0
#define TEMPER_OP(name, text, by) +1
#include "graph/op_list.inc"
    ;

}  // namespace temper
