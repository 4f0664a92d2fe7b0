// Add, cast and slice_rows: the ops that only move or combine elements.
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> InferAdd(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !(in[0] == in[1]) || !IsFloat(in[0])) return BadOperands(Op::kAdd, "two values alike", in, a);
  return Types{in[0]};
}
void AddGradient(GradientSink& sink) {
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, sink.OutputGradient(0));
  }
}
Cost AddCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

Result<Types> InferCast(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsFloat(in[0])) return BadOperands(Op::kCast, "one floating value", in, a);
  TEMPER_ASSIGN_OR_RETURN(const DType to, ParseDType(a.String("dtype")));
  const TensorType out{to, in[0].shape};
  if (!IsFloat(out) && to != DType::kF16) return BadOperands(Op::kCast, "a floating dtype", in, a);
  return Types{out};
}
void CastGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  const DType from = sink.value(sink.node().inputs[0]).type.dtype;
  sink.Contribute(0, sink.Emit(Op::kCast, {sink.OutputGradient(0)}, {{"dtype", std::string(ToString(from))}})[0]);
}
Cost CastCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

Result<Types> InferSliceRows(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsMatrix(in[0]) || a.Int("begin") > in[0].shape[0] ||
      a.Int("count") > in[0].shape[0] - a.Int("begin")) {
    return BadOperands(Op::kSliceRows, "x_TD with begin + count <= T", in, a);
  }
  return Types{{in[0].dtype, {a.Int("count"), in[0].shape[1]}}};
}
Cost SliceCost(const Types&, const Types& out, const Attributes&) {
  return {.read = out[0].bytes(), .written = out[0].bytes()};
}

constexpr AttributeSpec kCastAttributes[] = {String("dtype")};
constexpr AttributeSpec kSliceAttributes[] = {Size("begin"), Size("count")};

}  // namespace

const OpRule kAddRule = {.infer = InferAdd, .gradient = AddGradient, .cost = AddCost, .in_place_input = 0};
const OpRule kCastRule = {
    .attributes = kCastAttributes, .infer = InferCast, .gradient = CastGradient, .cost = CastCost};
const OpRule kSliceRowsRule = {.attributes = kSliceAttributes, .infer = InferSliceRows, .cost = SliceCost};

}  // namespace temper
