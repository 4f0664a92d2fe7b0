// A gated linear unit (Shazeer 2020): h = activation(gate) * up. Of silu(x) = x / (1 + exp(-x)) it is SwiGLU
// (transformers, LlamaMLP), of gelu GeGLU (GemmaMLP). Of the logistic function it is the gate of attention's output
// (Qwen3_5Attention), of the identity the product of two values (Lfm2ShortConv).
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// Silu, gelu by erf, gelu by tanh, the logistic function or the identity.
bool IsGate(const Attributes& a) {
  return int{a.Flag("gelu")} + int{a.Flag("sigmoid")} + int{a.Flag("identity")} <= 1 &&
         (a.Flag("gelu") || !a.Flag("tanh"));
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !(in[0] == in[1]) || !IsFloat(in[0]) || !IsGate(a)) {
    return BadOperands(Op::kGlu, "(gate, up) alike, one gate, tanh only with gelu", in, a);
  }
  return Types{in[0]};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 12);
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const Node& node = sink.node();
  const auto outputs =
      sink.Emit(Op::kGluBackward, {sink.OutputGradient(0), node.inputs[0], node.inputs[1]}, node.attributes);
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 3 || !(in[0] == in[1]) || !(in[1] == in[2]) || !IsFloat(in[0]) || !IsGate(a)) {
    return BadOperands(Op::kGluBackward, "(d_h, gate, up) alike, one gate, tanh only with gelu", in, a);
  }
  return Types{in[1], in[2]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 18);
}

constexpr AttributeSpec kAttributes[] = {Flag("gelu"), Flag("tanh"), Flag("sigmoid"), Flag("identity")};

constexpr FlowOperand kForwardIn[] = {{"TF"}, {"TF"}};
constexpr FlowOutput kForwardOut[] = {{"TF", {Factors({0, 1})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TF"), {"TF"}, {"TF"}};
constexpr FlowOutput kBackwardOut[] = {{"TF", {Factors({0, 1, 2})}}, {"TF", {Factors({0, 1, 2})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

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
                         .shard = ShardElementwise,
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
