// A gated linear unit (Shazeer 2020): h = activation(gate) * up. Of silu(x) = x / (1 + exp(-x)) it is SwiGLU
// (transformers, LlamaMLP), of gelu GeGLU (GemmaMLP). Of the logistic function it is the gate of attention's output
// (Qwen3_5Attention), of the identity the product of two values (Lfm2ShortConv).
// Clamped, gate and up alternate in the columns of one operand, and h = g * sigmoid(alpha * g) * (u + 1) with g =
// min(gate, limit) and u = up within [-limit, limit] (transformers, GptOssExperts). A bound passes the gradient at the
// bound itself, as torch's clamp.
#include <fmt/core.h>

#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// Silu, gelu by erf, gelu by tanh, the logistic function or the identity; or that of clamped pairs.
bool IsGate(const Attributes& a) {
  if (a.Flag("clamped")) {
    return a.DoubleOr("limit", 0) > 0 && a.Has("alpha") && !a.Flag("gelu") && !a.Flag("tanh") && !a.Flag("sigmoid") &&
           !a.Flag("identity");
  }
  return !a.Has("limit") && !a.Has("alpha") &&
         int{a.Flag("gelu")} + int{a.Flag("sigmoid")} + int{a.Flag("identity")} <= 1 &&
         (a.Flag("gelu") || !a.Flag("tanh"));
}

// Of pairs: the result.
bool ArePairs(const TensorType& x) {
  return IsMatrix(x) && IsFloat(x) && x.shape[1] % 2 == 0;
}
TensorType OfPairs(const TensorType& x) {
  return {x.dtype, {x.shape[0], x.shape[1] / 2}};
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (a.Flag("clamped")) {
    if (in.size() == 1 && ArePairs(in[0]) && IsGate(a)) return Types{OfPairs(in[0])};
    return BadOperands(Op::kGlu, "(pairs_T(2F)) with limit > 0, alpha and no other gate", in, a);
  }
  if (in.size() != 2 || !(in[0] == in[1]) || !IsFloat(in[0]) || !IsGate(a)) {
    return BadOperands(Op::kGlu, "(gate, up) alike, one gate, tanh only with gelu", in, a);
  }
  return Types{in[0]};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 12);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  if (node.attributes.Flag("clamped")) {
    if (!sink.Needs(0)) return;
    return sink.Contribute(0,
                           sink.Emit(Op::kGluBackward, {sink.OutputGradient(0), node.inputs[0]}, node.attributes)[0]);
  }
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const auto outputs =
      sink.Emit(Op::kGluBackward, {sink.OutputGradient(0), node.inputs[0], node.inputs[1]}, node.attributes);
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

// Ranks that split the columns have whole pairs.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  if (!node.attributes.Flag("clamped")) return ShardElementwise(sink);
  const Sharding p = sink.Settled(sink.sharding(0));
  const int64_t parts = sink.mesh().size(p.split(1)), pairs = sink.value(node.outputs[0]).type.shape[1];
  if (pairs % parts != 0) {
    return sink.Refuse(
        fmt::format("{} has {} pairs of gate and up, which {} ranks cannot share: choose a mesh.tp that "
                    "divides them",
                    sink.value(node.inputs[0]).name, pairs, parts));
  }
  sink.Deliver(0, sink.Emit(Op::kGlu, {sink.Use(0, p)}, node.attributes, {p})[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (a.Flag("clamped")) {
    if (in.size() == 2 && ArePairs(in[1]) && in[0] == OfPairs(in[1]) && IsGate(a)) return Types{in[1]};
    return BadOperands(Op::kGluBackward, "(d_h_TF, pairs_T(2F)) with limit > 0, alpha and no other gate", in, a);
  }
  if (in.size() != 3 || !(in[0] == in[1]) || !(in[1] == in[2]) || !IsFloat(in[0]) || !IsGate(a)) {
    return BadOperands(Op::kGluBackward, "(d_h, gate, up) alike, one gate, tanh only with gelu", in, a);
  }
  return Types{in[1], in[2]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 18);
}

constexpr AttributeSpec kAttributes[] = {Flag("gelu"),           Flag("tanh"),    Flag("sigmoid"),
                                         Flag("identity"),       Flag("clamped"), OptionalDouble("alpha"),
                                         OptionalDouble("limit")};

// F is pairs in the operand.
constexpr FlowOperand kPairsIn[] = {{"TF"}};
constexpr FlowOutput kPairsOut[] = {{"TF", {Factors({0})}}};
constexpr FlowRule kPairsFlow = {.in = kPairsIn, .out = kPairsOut};
constexpr FlowOperand kPairsBackwardIn[] = {LinearIn("TF"), {"TF"}};
constexpr FlowOutput kPairsBackwardOut[] = {{"TF", {Factors({0, 1})}}};
constexpr FlowRule kPairsBackwardFlow = {.in = kPairsBackwardIn, .out = kPairsBackwardOut};

constexpr FlowOperand kForwardIn[] = {{"TF"}, {"TF"}};
constexpr FlowOutput kForwardOut[] = {{"TF", {Factors({0, 1})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .flag = "clamped", .flagged = &kPairsFlow};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TF"), {"TF"}, {"TF"}};
constexpr FlowOutput kBackwardOut[] = {{"TF", {Factors({0, 1, 2})}}, {"TF", {Factors({0, 1, 2})}}};
constexpr FlowRule kBackwardFlow = {
    .in = kBackwardIn, .out = kBackwardOut, .flag = "clamped", .flagged = &kPairsBackwardFlow};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAlike(dtype, 2, {});
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAlike(dtype, 3, {});
}

}  // namespace

const OpRule kGluRule = {.kind = OpKind::kElementwise,
                         .attributes = kAttributes,
                         .infer = Infer,
                         .gradient = Gradient,
                         .shard = ShardOperands,
                         .flow = &kForwardFlow,
                         .cost = ForwardCost,
                         .recompute = RecomputeCost::kCheap,
                         .measured = Measured};
const OpRule kGluBackwardRule = {.kind = OpKind::kElementwise,
                                 .attributes = kAttributes,
                                 .infer = InferBackward,
                                 .flow = &kBackwardFlow,
                                 .cost = BackwardCost,
                                 .in_place_input = 1,
                                 .measured = MeasuredBackward};

}  // namespace temper
