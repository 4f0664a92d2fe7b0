// Linear: y = scale * x w^T + bias + acc, with w stored [out, in] as in the files. The accumulator is a residual
// (o_proj, down_proj) or the base product that a LoRA branch adds to.
#include "graph/ops/matrix_product.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

Flops GemmFlops(int64_t t, int64_t i, int64_t o) {
  return {2.0 * static_cast<double>(t) * static_cast<double>(i) * static_cast<double>(o)};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const size_t want = 2 + a.Flag("bias") + a.Flag("acc");
  if (in.size() != want || !IsMatrix(in[0]) || !IsMatrix(in[1]) || in[0].shape[1] != in[1].shape[1] ||
      !IsFloat(in[0]) || in[0].dtype != in[1].dtype) {
    return BadOperands(Op::kLinear, "(x_TI, w_OI, [bias_O], [acc_TO])", in, a);
  }
  TensorType y{in[0].dtype, {in[0].shape[0], in[1].shape[0]}};
  if (a.Has("out")) {
    TEMPER_ASSIGN_OR_RETURN(y.dtype, ParseDType(a.String("out")));
    if (!IsFloat(y)) return BadOperands(Op::kLinear, "a floating 'out'", in, a);
  }
  if (a.Flag("bias") && !IsFloatVector(in[2], y.shape[1])) return BadOperands(Op::kLinear, "bias_O", in, a);
  if (a.Flag("acc") && !(in.back() == y)) return BadOperands(Op::kLinear, "acc_TO like y", in, a);
  return Types{y};
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const ValueId d_y = sink.OutputGradient(0);
  const ValueId x = node.inputs[0], w = node.inputs[1];
  const double scale = node.attributes.DoubleOr("scale", 1.0);
  const auto emit = [&](Op op, std::vector<ValueId> inputs, int target) {
    const ValueId acc = sink.Pending(target);
    if (acc != kNoValue) inputs.push_back(acc);
    Attributes attributes = {{"acc", int64_t{acc != kNoValue}}};
    if (op != Op::kSumRows && scale != 1.0) attributes.Set("scale", scale);
    sink.Deliver(target, sink.Emit(op, inputs, attributes)[0]);
  };
  int next = 2;
  if (node.attributes.Flag("bias")) {
    if (sink.Needs(next)) emit(Op::kSumRows, {d_y}, next);
    ++next;
  }
  if (sink.Needs(1)) emit(Op::kLinearDw, {d_y, x}, 1);
  if (sink.Needs(0)) emit(Op::kLinearDx, {d_y, w}, 0);
  if (node.attributes.Flag("acc") && sink.Needs(next)) sink.Contribute(next, d_y);
}

Result<Types> InferDx(const Types& in, const Attributes& a) {
  if (in.size() != 2u + a.Flag("acc") || !IsMatrix(in[0]) || !IsMatrix(in[1]) || in[0].shape[1] != in[1].shape[0] ||
      !IsFloat(in[0]) || in[0].dtype != in[1].dtype) {
    return BadOperands(Op::kLinearDx, "(d_y_TO, w_OI, [acc_TI])", in, a);
  }
  const TensorType d_x{in[0].dtype, {in[0].shape[0], in[1].shape[1]}};
  if (a.Flag("acc") && !(in[2] == d_x)) return BadOperands(Op::kLinearDx, "acc_TI like d_x", in, a);
  return Types{d_x};
}

Result<Types> InferDw(const Types& in, const Attributes& a) {
  if (in.size() != 2u + a.Flag("acc") || !IsMatrix(in[0]) || !IsMatrix(in[1]) || in[0].shape[0] != in[1].shape[0] ||
      !IsFloat(in[0]) || in[0].dtype != in[1].dtype) {
    return BadOperands(Op::kLinearDw, "(d_y_TO, x_TI, [acc_OI])", in, a);
  }
  const TensorType d_w{GradientDType(in[0].dtype), {in[0].shape[1], in[1].shape[1]}};
  if (a.Flag("acc") && !(in[2] == d_w)) return BadOperands(Op::kLinearDw, "acc_OI like d_w", in, a);
  return Types{d_w};
}

Result<Types> InferSumRows(const Types& in, const Attributes& a) {
  if (in.size() != 1u + a.Flag("acc") || !IsMatrix(in[0]) || !IsFloat(in[0])) {
    return BadOperands(Op::kSumRows, "(d_y_TO, [acc_O])", in, a);
  }
  const TensorType sum{GradientDType(in[0].dtype), {in[0].shape[1]}};
  if (a.Flag("acc") && !(in[1] == sum)) return BadOperands(Op::kSumRows, "acc_O like the sum", in, a);
  return Types{sum};
}

Cost SumRowsCost(const Types& in, const Types& out, const Attributes&) {
  return {.flops = {static_cast<double>(in[0].shape.elements())}, .read = in[0].bytes(), .written = out[0].bytes()};
}

// x_TI by w_OI; d_y_TO by w_OI; d_y_TO by x_TI (summed over T).
Cost LinearCost(const Types& in, const Types& out, const Attributes&) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = GemmFlops(in[0].shape[0], in[0].shape[1], in[1].shape[0]);
  return cost;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = GemmFlops(in[0].shape[0], in[0].shape[1], in[1].shape[1]);
  return cost;
}

Bytes LinearWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  return MatrixProductScratch(out[0].shape[0], out[0].shape[1], in[0].shape[1], out[0].dtype, true, threads);
}
Bytes DwWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  return MatrixProductScratch(out[0].shape[0], out[0].shape[1], in[0].shape[0], out[0].dtype, false, threads);
}

constexpr AttributeSpec kAttributes[] = {Flag("bias"), Flag("acc"), OptionalDouble("scale"), OptionalString("out")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), OptionalDouble("scale")};
constexpr AttributeSpec kSumRowsAttributes[] = {Flag("acc")};

}  // namespace

const OpRule kLinearRule = {
    .attributes = kAttributes, .infer = Infer, .gradient = Gradient, .cost = LinearCost, .workspace = LinearWorkspace};
const OpRule kLinearDxRule = {.attributes = kBackwardAttributes,
                              .infer = InferDx,
                              .cost = BackwardCost,
                              .workspace = LinearWorkspace,
                              .in_place_input = 2};
const OpRule kLinearDwRule = {.attributes = kBackwardAttributes,
                              .infer = InferDw,
                              .cost = BackwardCost,
                              .workspace = DwWorkspace,
                              .in_place_input = 2};
const OpRule kSumRowsRule = {
    .attributes = kSumRowsAttributes, .infer = InferSumRows, .cost = SumRowsCost, .in_place_input = 1};

}  // namespace temper
