// Add, scale, scale_by, cast, slice_rows and slice_columns: the ops that only move or combine elements.
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> InferAdd(const Types& in, const Attributes& a) {
  const bool good = in.size() == 2 && IsFloat(in[0]) && in[0].dtype == in[1].dtype &&
                    (in[0] == in[1] || (IsMatrix(in[0]) && IsVector(in[1], in[0].shape[1])));
  if (!good) return BadOperands(Op::kAdd, "two values of one type, or x_TD and b_D", in, a);
  return Types{in[0]};
}
void AddGradient(GradientSink& sink) {
  const ValueId d_y = sink.OutputGradient(0);
  const Node& node = sink.node();
  if (sink.Needs(0)) sink.Contribute(0, d_y);
  if (!sink.Needs(1)) return;
  if (sink.value(node.inputs[0]).type == sink.value(node.inputs[1]).type) {
    sink.Contribute(1, d_y);
    return;
  }
  const ValueId acc = sink.Pending(1);
  std::vector<ValueId> inputs = {d_y};
  if (acc != kNoValue) inputs.push_back(acc);
  sink.Deliver(1, sink.Emit(Op::kSumRows, inputs, {{"acc", int64_t{acc != kNoValue}}})[0]);
}
// Terms of a sum can be added as they are; else both operands lie like the first, whose sums are settled.
void ShardAdd(ShardingSink& sink) {
  const Node& node = sink.node();
  const bool alike = sink.value(node.inputs[0]).type == sink.value(node.inputs[1]).type;
  Sharding p = sink.sharding(0);
  if (!alike || !(p == sink.sharding(1))) p = sink.Settled(p);
  if (alike) p.varying |= sink.sharding(1).varying - p.split() - p.partial;
  const Sharding second = alike ? p : VectorBeside(p, 1, sink.mesh());
  const ValueId a = sink.Use(0, p), b = sink.Use(1, second);
  sink.Deliver(0, sink.Emit(Op::kAdd, {a, b}, {}, {p})[0]);
}
Cost CheapCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

Result<Types> InferScale(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsFloat(in[0])) return BadOperands(Op::kScale, "one floating value", in, a);
  return Types{in[0]};
}
void ScaleGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(0, sink.Emit(Op::kScale, {sink.OutputGradient(0)}, sink.node().attributes)[0]);
}

Result<Types> InferScaleBy(const Types& in, const Attributes& a) {
  const bool good = in.size() == 2 && IsFloat(in[0]) && IsFloatVector(in[1], 1);
  if (!good) return BadOperands(Op::kScaleBy, "(x, factor_1)", in, a);
  return Types{in[0]};
}
void ScaleByGradient(GradientSink& sink) {
  TEMPER_CHECK(!sink.Needs(1)) << sink.value(sink.node().inputs[1]).name << " is a factor, which is never trained";
  if (!sink.Needs(0)) return;
  sink.Contribute(0, sink.Emit(Op::kScaleBy, {sink.OutputGradient(0), sink.node().inputs[1]}, {})[0]);
}
void ShardScaleBy(ShardingSink& sink) {
  const Sharding p = sink.Settled(sink.sharding(0));
  const ValueId x = sink.Use(0, p), factor = sink.Use(1, WholeBeside(p, sink.mesh()));
  sink.Deliver(0, sink.Emit(Op::kScaleBy, {x, factor}, {}, {p})[0]);
}

Result<Types> InferCast(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsFloat(in[0])) return BadOperands(Op::kCast, "one floating value", in, a);
  TEMPER_ASSIGN_OR_RETURN(const DType to, ParseDType(a.String("dtype")));
  TensorType out{to, in[0].shape};
  if (!IsFloat(out) && to != DType::kF16) return BadOperands(Op::kCast, "a floating dtype", in, a);
  if (!a.Has("layout")) return Types{out};
  const auto layout = ParseElementLayout(a.String("layout"));
  if (!layout || *layout == ElementLayout::kRowMajor || to != DType::kBF16 || in[0].dtype != to || !IsMatrix(in[0])) {
    return BadOperands(Op::kCast, "a matrix of bf16 for a packed layout", in, a);
  }
  out.layout = *layout;
  return Types{out};
}
void CastGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  const DType from = sink.value(sink.node().inputs[0]).type.dtype;
  sink.Contribute(0, sink.Emit(Op::kCast, {sink.OutputGradient(0)}, {{"dtype", std::string(ToString(from))}})[0]);
}

Result<Types> InferSliceRows(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsMatrix(in[0]) || in[0].dtype.quantised() || a.Int("begin") > in[0].shape[0] ||
      a.Int("count") > in[0].shape[0] - a.Int("begin")) {
    return BadOperands(Op::kSliceRows, "x_TD with begin + count <= T", in, a);
  }
  return Types{{in[0].dtype, {a.Int("count"), in[0].shape[1]}}};
}
Cost SliceCost(const Types&, const Types& out, const Attributes&) {
  return {.read = out[0].bytes(), .written = out[0].bytes()};
}

Result<Types> InferSliceColumns(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsMatrix(in[0]) || !IsFloat(in[0]) || a.Int("begin") > in[0].shape[1] ||
      a.Int("count") > in[0].shape[1] - a.Int("begin")) {
    return BadOperands(Op::kSliceColumns, "x_TD with begin + count <= D", in, a);
  }
  return Types{{in[0].dtype, {in[0].shape[0], a.Int("count")}}};
}
// Each slice adds its columns to the gradient of the whole, where that lies.
void SliceColumnsGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  const Node& node = sink.node();
  const ValueId acc = sink.Pending(0);
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  if (acc != kNoValue) inputs.push_back(acc);
  const Attributes attributes = {{"begin", node.attributes.Int("begin")},
                                 {"columns", sink.value(node.inputs[0]).type.shape[1]},
                                 {"acc", int64_t{acc != kNoValue}}};
  sink.Deliver(0, sink.Emit(Op::kSliceColumnsBackward, std::move(inputs), attributes)[0]);
}
// Columns are whole.
void ShardSliceColumns(ShardingSink& sink) {
  Sharding p = sink.Settled(sink.sharding(0));
  for (const Axis axis : p.split(1).axes()) p = Gathered(p, 1, axis);
  sink.Deliver(0, sink.Emit(Op::kSliceColumns, {sink.Use(0, p)}, sink.node().attributes, {p})[0]);
}
Result<Types> InferSliceColumnsBackward(const Types& in, const Attributes& a) {
  const bool acc = a.Flag("acc");
  const bool good = in.size() == 1u + acc && IsMatrix(in[0]) && IsFloat(in[0]) && in[0].shape[1] <= a.Int("columns") &&
                    a.Int("begin") <= a.Int("columns") - in[0].shape[1];
  if (!good) return BadOperands(Op::kSliceColumnsBackward, "(d_y_TC, [acc_TD]) with begin + C <= D", in, a);
  const TensorType d_x{in[0].dtype, {in[0].shape[0], a.Int("columns")}};
  if (acc && !(in[1] == d_x)) return BadOperands(Op::kSliceColumnsBackward, "acc like d_x", in, a);
  return Types{d_x};
}
// With acc only the columns of d_y are touched; without, the rest is zeroed.
Cost SliceColumnsBackwardCost(const Types& in, const Types& out, const Attributes& a) {
  if (a.Flag("acc")) return {.read = in[0].bytes() * 2, .written = in[0].bytes()};
  return {.read = in[0].bytes(), .written = out[0].bytes()};
}

constexpr AttributeSpec kColumnsAttributes[] = {Size("begin"), Size("count")};
constexpr AttributeSpec kColumnsBackwardAttributes[] = {Size("begin"), Size("columns"), Flag("acc")};
constexpr AttributeSpec kScaleAttributes[] = {Double("factor")};
constexpr AttributeSpec kCastAttributes[] = {String("dtype"), OptionalString("layout")};
constexpr AttributeSpec kSliceAttributes[] = {Size("begin"), Size("count")};

constexpr FlowOperand kAddIn[] = {LinearIn("TD"), LinearIn("TD")};
constexpr FlowOutput kAddOut[] = {{"TD", {Factors({0}), Factors({1})}}};
constexpr FlowRule kAddFlow = {.in = kAddIn, .out = kAddOut};
constexpr FlowOperand kUnaryIn[] = {LinearIn("TD")};
constexpr FlowOutput kUnaryOut[] = {{"TD", {Factors({0})}}};
constexpr FlowRule kUnaryFlow = {.in = kUnaryIn, .out = kUnaryOut};
constexpr FlowOperand kSliceIn[] = {LinearIn("tD")};
constexpr FlowOutput kSliceOut[] = {{"tD", {Factors({0})}}};
constexpr FlowRule kSliceFlow = {.in = kSliceIn, .out = kSliceOut};

constexpr FlowOperand kColumnsIn[] = {LinearIn("Td")};
constexpr FlowOutput kColumnsOut[] = {{"Td", {Factors({0})}}};
constexpr FlowRule kColumnsFlow = {.in = kColumnsIn, .out = kColumnsOut};
constexpr FlowOperand kColumnsBackwardIn[] = {LinearIn("Td"), LinearIn("Td", "acc")};
constexpr FlowOutput kColumnsBackwardOut[] = {{"Td", {Factors({0}), Factors({1})}}};
constexpr FlowRule kColumnsBackwardFlow = {.in = kColumnsBackwardIn, .out = kColumnsBackwardOut};
constexpr FlowOperand kScaleByIn[] = {LinearIn("TD"), {"o"}};
constexpr FlowOutput kScaleByOut[] = {{"TD", {Factors({0, 1})}}};
constexpr FlowRule kScaleByFlow = {.in = kScaleByIn, .out = kScaleByOut};

std::vector<MeasuredCase> MeasuredAdd(DType dtype) {
  return MeasuredAlike(dtype, 2, {});
}
std::vector<MeasuredCase> MeasuredScale(DType dtype) {
  return MeasuredAlike(dtype, 1, {{"factor", 0.5}});
}
// From masters to weights, and from activations to sums.
std::vector<MeasuredCase> MeasuredCast(DType dtype) {
  const DType to = dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
  return MeasuredAlike(dtype, 1, {{"dtype", std::string(ToString(to))}});
}

}  // namespace

const OpRule kAddRule = {.kind = OpKind::kElementwise,
                         .infer = InferAdd,
                         .gradient = AddGradient,
                         .shard = ShardAdd,
                         .flow = &kAddFlow,
                         .cost = CheapCost,
                         .in_place_input = 0,
                         .recompute = RecomputeCost::kCheap,
                         .measured = MeasuredAdd};
const OpRule kScaleRule = {.kind = OpKind::kElementwise,
                           .attributes = kScaleAttributes,
                           .infer = InferScale,
                           .gradient = ScaleGradient,
                           .shard = ShardElementwise,
                           .flow = &kUnaryFlow,
                           .cost = CheapCost,
                           .in_place_input = 0,
                           .recompute = RecomputeCost::kCheap,
                           .measured = MeasuredScale};
const OpRule kScaleByRule = {.kind = OpKind::kMemory,  // one operand is a number for all elements
                             .infer = InferScaleBy,
                             .gradient = ScaleByGradient,
                             .shard = ShardScaleBy,
                             .flow = &kScaleByFlow,
                             .cost = CheapCost,
                             .in_place_input = 0,
                             .recompute = RecomputeCost::kCheap};
const OpRule kCastRule = {.kind = OpKind::kElementwise,
                          .attributes = kCastAttributes,
                          .infer = InferCast,
                          .gradient = CastGradient,
                          .shard = ShardElementwise,
                          .flow = &kUnaryFlow,
                          .cost = CheapCost,
                          .recompute = RecomputeCost::kCheap,
                          .measured = MeasuredCast};
const OpRule kSliceRowsRule = {.kind = OpKind::kMemory,
                               .attributes = kSliceAttributes,
                               .infer = InferSliceRows,
                               .flow = &kSliceFlow,
                               .cost = SliceCost,
                               .recompute = RecomputeCost::kCheap};
const OpRule kSliceColumnsRule = {.kind = OpKind::kMemory,
                                  .attributes = kColumnsAttributes,
                                  .infer = InferSliceColumns,
                                  .gradient = SliceColumnsGradient,
                                  .shard = ShardSliceColumns,
                                  .flow = &kColumnsFlow,
                                  .cost = SliceCost,
                                  .recompute = RecomputeCost::kCheap};
const OpRule kSliceColumnsBackwardRule = {.kind = OpKind::kMemory,
                                          .attributes = kColumnsBackwardAttributes,
                                          .infer = InferSliceColumnsBackward,
                                          .flow = &kColumnsBackwardFlow,
                                          .cost = SliceColumnsBackwardCost,
                                          .in_place_input = 1};

}  // namespace temper
