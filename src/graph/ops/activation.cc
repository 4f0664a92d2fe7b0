// ReLU, its square (So et al. 2021; transformers, relu2) and GELU (exact by erf, or the tanh approximation: Hendrycks &
// Gimpel 2016). ReLU's backward needs only the sign of its output, so the output can be what is kept; the square's
// takes its input, as the root of a rounded output is not the input. Clamp bounds queries, keys and values
// (transformers, clip_qkv of OLMo and MPT); the bounds themselves pass the gradient. Softcap, of the logits of
// decoding, has no backward.
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !IsFloat(in[0])) return BadOperands(Op::kGelu, "one floating value", in, a);
  return Types{in[0]};
}
Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !(in[0] == in[1]) || !IsFloat(in[0]))
    return BadOperands(Op::kGeluBackward, "two values of one type", in, a);
  return Types{in[0]};
}
Result<Types> InferSoftcap(const Types& in, const Attributes& a) {
  if (!(a.Double("cap") > 0)) return BadOperands(Op::kSoftcap, "a cap > 0", in, a);
  return Infer(in, a);
}
Cost CheapCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}
Cost GeluCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 20);
}

void ReluGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(0, sink.Emit(Op::kReluBackward, {sink.OutputGradient(0), sink.node().outputs[0]}, {})[0]);
}
void ReluSquaredGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(0, sink.Emit(Op::kReluSquaredBackward, {sink.OutputGradient(0), sink.node().inputs[0]}, {})[0]);
}
Result<Types> InferClamp(const Types& in, const Attributes& a) {
  if (!(a.Double("limit") > 0)) return BadOperands(Op::kClamp, "a limit > 0", in, a);
  return Infer(in, a);
}
Result<Types> InferClampBackward(const Types& in, const Attributes& a) {
  if (!(a.Double("limit") > 0)) return BadOperands(Op::kClampBackward, "a limit > 0", in, a);
  return InferBackward(in, a);
}
void ClampGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(
      0, sink.Emit(Op::kClampBackward, {sink.OutputGradient(0), sink.node().inputs[0]}, sink.node().attributes)[0]);
}
void GeluGradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  sink.Contribute(
      0, sink.Emit(Op::kGeluBackward, {sink.OutputGradient(0), sink.node().inputs[0]}, sink.node().attributes)[0]);
}

constexpr AttributeSpec kSoftcapAttributes[] = {Double("cap")};
constexpr AttributeSpec kClampAttributes[] = {Double("limit")};
constexpr AttributeSpec kGeluAttributes[] = {Flag("tanh")};

constexpr FlowOperand kActivationIn[] = {{"TF"}};
constexpr FlowOutput kActivationOut[] = {{"TF", {Factors({0})}}};
constexpr FlowRule kActivationFlow = {.in = kActivationIn, .out = kActivationOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TF"), {"TF"}};
constexpr FlowOutput kBackwardOut[] = {{"TF", {Factors({0, 1})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAlike(dtype, 1, {});
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAlike(dtype, 2, {});
}
std::vector<MeasuredCase> MeasuredGelu(DType dtype) {
  return MeasuredAlike(dtype, 1, {{"tanh", int64_t{0}}});
}
std::vector<MeasuredCase> MeasuredGeluBackward(DType dtype) {
  return MeasuredAlike(dtype, 2, {{"tanh", int64_t{0}}});
}

}  // namespace

const OpRule kSoftcapRule = {.kind = OpKind::kElementwise,
                             .attributes = kSoftcapAttributes,
                             .infer = InferSoftcap,
                             .shard = ShardElementwise,
                             .flow = &kActivationFlow,
                             .cost = GeluCost,
                             .in_place_input = 0,
                             .measured_as = Op::kGelu};
const OpRule kReluRule = {.kind = OpKind::kElementwise,
                          .infer = Infer,
                          .gradient = ReluGradient,
                          .shard = ShardElementwise,
                          .flow = &kActivationFlow,
                          .cost = CheapCost,
                          .in_place_input = 0,
                          .recompute = RecomputeCost::kCheap,
                          .measured = Measured};
const OpRule kReluBackwardRule = {.kind = OpKind::kElementwise,
                                  .infer = InferBackward,
                                  .flow = &kBackwardFlow,
                                  .cost = CheapCost,
                                  .in_place_input = 0,
                                  .measured = MeasuredBackward};
const OpRule kReluSquaredRule = {.kind = OpKind::kElementwise,
                                 .infer = Infer,
                                 .gradient = ReluSquaredGradient,
                                 .shard = ShardElementwise,
                                 .flow = &kActivationFlow,
                                 .cost = CheapCost,
                                 .recompute = RecomputeCost::kCheap,
                                 .measured = Measured};
const OpRule kReluSquaredBackwardRule = {.kind = OpKind::kElementwise,
                                         .infer = InferBackward,
                                         .flow = &kBackwardFlow,
                                         .cost = CheapCost,
                                         .in_place_input = 0,
                                         .measured = MeasuredBackward};
const OpRule kClampRule = {.kind = OpKind::kElementwise,
                           .attributes = kClampAttributes,
                           .infer = InferClamp,
                           .gradient = ClampGradient,
                           .shard = ShardElementwise,
                           .flow = &kActivationFlow,
                           .cost = CheapCost,
                           .recompute = RecomputeCost::kCheap,
                           .measured_as = Op::kReluSquared};
const OpRule kClampBackwardRule = {.kind = OpKind::kElementwise,
                                   .attributes = kClampAttributes,
                                   .infer = InferClampBackward,
                                   .flow = &kBackwardFlow,
                                   .cost = CheapCost,
                                   .in_place_input = 0,
                                   .measured_as = Op::kReluSquaredBackward};
const OpRule kGeluRule = {.kind = OpKind::kElementwise,
                          .attributes = kGeluAttributes,
                          .infer = Infer,
                          .gradient = GeluGradient,
                          .shard = ShardElementwise,
                          .flow = &kActivationFlow,
                          .cost = GeluCost,
                          .recompute = RecomputeCost::kCheap,
                          .measured = MeasuredGelu};
const OpRule kGeluBackwardRule = {.kind = OpKind::kElementwise,
                                  .attributes = kGeluAttributes,
                                  .infer = InferBackward,
                                  .flow = &kBackwardFlow,
                                  .cost = GeluCost,
                                  .in_place_input = 0,
                                  .measured = MeasuredGeluBackward};

}  // namespace temper
