// Ops that bring data to another tier or to other ranks, by name: TrafficOp::kSend is Op::kSend. For sources that name
// no other: they are not compiled again when an op is added.
#pragma once

#include "graph/op.h"

namespace temper {

class TrafficOp {
  enum Place {
#define TEMPER_OP(name, text, by) kPlaceOf##name,
#include "graph/traffic_list.inc"
#undef TEMPER_OP
  };

 public:
  // named_ops.cc checks that op_list.inc begins with them.
#define TEMPER_OP(name, text, by) static constexpr Op k##name = static_cast<Op>(kPlaceOf##name);
#include "graph/traffic_list.inc"
#undef TEMPER_OP
};

}  // namespace temper
