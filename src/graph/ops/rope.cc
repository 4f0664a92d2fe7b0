// Rotary position embedding (Su et al. 2021) in the half-split layout of HF files (transformers, rotate_half): element
// e of the first half of a head is paired with element e of the second half. The table is made once per micro-batch and
// serves every layer; the adjoint of a rotation is the rotation by the negative angle.
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> InferTable(const Types& in, const Attributes& a) {
  if (in.size() != 1 || in[0].shape.rank() != 1 || !IsIndex(in[0], in[0].shape[0])) {
    return BadOperands(Op::kRopeTable, "(position_T i32)", in, a);
  }
  const auto half = static_cast<int64_t>(a.Doubles("inv_freq").size());
  const DType dtype = a.Flag("f64") ? DType::kF64 : DType::kF32;
  return Types{{dtype, {in[0].shape[0], 2 * half}}};
}
// A sine and a cosine cost about 20 operations each.
Cost TableCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 20);
}

Result<Types> InferRope(const Types& in, const Attributes& a) {
  const int64_t e = a.Int("head_dim");
  if (in.size() != 2 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsMatrix(in[1]) || e <= 0 || e % 2 != 0 ||
      in[1].shape[1] != e || in[1].dtype != StatisticDType(in[0].dtype) || in[0].shape[0] != in[1].shape[0] ||
      in[0].shape[1] % e != 0) {
    return BadOperands(Op::kRope, "(x_T(H*E), table_TE)", in, a);
  }
  return Types{in[0]};
}
void RopeGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  Attributes attributes = sink.node().attributes;
  attributes.Set("inverse", int64_t{!attributes.Flag("inverse")});
  sink.Contribute(0, sink.Emit(Op::kRope, {sink.OutputGradient(0), sink.node().inputs[1]}, attributes)[0]);
}
Cost RopeCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 3);
}

constexpr AttributeSpec kTableAttributes[] = {Doubles("inv_freq"), Flag("f64")};
constexpr AttributeSpec kRopeAttributes[] = {Size("head_dim"), Flag("inverse")};

}  // namespace

const OpRule kRopeTableRule = {.attributes = kTableAttributes, .infer = InferTable, .cost = TableCost};
const OpRule kRopeRule = {
    .attributes = kRopeAttributes, .infer = InferRope, .gradient = RopeGradient, .cost = RopeCost, .in_place_input = 0};

}  // namespace temper
