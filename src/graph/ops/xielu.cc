// xIELU (Huang & Schlag 2024; transformers, XIELUActivation), an activation with two learned numbers for all elements:
//   x > 0:  p x^2 + beta x                                  p = softplus(alpha_p)
//   else:   n (exp(min(x, eps)) - 1 - x) + beta x           n = beta + softplus(alpha_n)
// beta and eps (a little below 0) are numbers of the files, never trained. Between eps and 0 the slope is beta - n, as
// torch's min passes no gradient there.
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

// From operand `first` on: x, alpha_p, alpha_n, beta, eps.
bool AreOperands(const Types& in, size_t first) {
  const TensorType &x = in[first], number{x.dtype, {1}}, fixed{DType::kF32, {1}};
  return IsFloat(x) && in[first + 1] == number && in[first + 2] == number && in[first + 3] == fixed &&
         in[first + 4] == fixed;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 5 || !AreOperands(in, 0)) {
    return BadOperands(Op::kXielu, "(x, alpha_p_1, alpha_n_1, beta_1 f32, eps_1 f32)", in, a);
  }
  return Types{in[0]};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 20);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  TEMPER_CHECK(!sink.Needs(3) && !sink.Needs(4)) << "xielu's beta and eps are never trained";
  // Of the two numbers, one is trained where the other is.
  const bool grad_w = sink.Needs(1) || sink.Needs(2);
  if (!sink.Needs(0) && !grad_w) return;
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  const bool acc_w = grad_w && sink.Pending(1) != kNoValue && sink.Pending(2) != kNoValue;
  if (acc_w) inputs.insert(inputs.end(), {sink.Pending(1), sink.Pending(2)});
  const auto outputs =
      sink.Emit(Op::kXieluBackward, std::move(inputs), {{"grad_w", int64_t{grad_w}}, {"acc_w", int64_t{acc_w}}});
  if (sink.Needs(0)) sink.Contribute(0, outputs[0]);
  for (int i = 1; i < 3; ++i) {
    if (!sink.Needs(i)) continue;
    const ValueId gradient = outputs[static_cast<size_t>(i)];
    acc_w ? sink.Deliver(i, gradient) : sink.Contribute(i, gradient);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const bool grad_w = a.Flag("grad_w"), acc_w = a.Flag("acc_w");
  const bool good = in.size() == 6u + 2 * acc_w && AreOperands(in, 1) && in[0] == in[1] && (grad_w || !acc_w);
  const TensorType d_w = good ? TensorType{GradientDType(in[1].dtype), {1}} : TensorType{};
  if (!good || (acc_w && !(in[6] == d_w && in[7] == d_w))) {
    return BadOperands(Op::kXieluBackward, "(d_y, x, alpha_p_1, alpha_n_1, beta_1 f32, eps_1 f32, [acc_p, acc_n])", in,
                       a);
  }
  if (grad_w) return Types{in[1], d_w, d_w};
  return Types{in[1]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 30);
}
// Two sums of each block of 4096 elements (backend/cpu/pointwise/range_kernel.h), which are then added up in order.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int) {
  return {a.Flag("grad_w") ? (in[1].shape.elements() + 4095) / 4096 * 2 * SizeOf(DType::kF64) : 0};
}

void ShardOperands(ShardingSink& sink) {
  const Sharding p = sink.Settled(sink.sharding(0)), whole = WholeBeside(p, sink.mesh());
  std::vector<ValueId> inputs = {sink.Use(0, p)};
  for (int i = 1; i < 5; ++i) inputs.push_back(sink.Use(i, whole));
  sink.Deliver(0, sink.Emit(Op::kXielu, std::move(inputs), {}, {p})[0]);
}

// d_alpha_p and d_alpha_n over what they are added to.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  return output > 0 && a.Flag("acc_w") ? num_inputs - 3 + output : -1;
}

constexpr AttributeSpec kBackwardAttributes[] = {Flag("grad_w"), Flag("acc_w")};

constexpr FlowOperand kForwardIn[] = {{"TF"}, {"o"}, {"o"}, {"o"}, {"o"}};
constexpr FlowOutput kForwardOut[] = {{"TF", {Factors({0, 1, 2, 3, 4})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {
    LinearIn("TF"), {"TF"}, {"o"}, {"o"}, {"o"}, {"o"}, LinearIn("o", "acc_w"), LinearIn("o", "acc_w")};
constexpr FlowOutput kBackwardOut[] = {{"TF", {Factors({0, 1, 2, 3, 4, 5})}},
                                       {"o", {Factors({0, 1, 2}), Factors({6})}, "grad_w"},
                                       {"o", {Factors({0, 1, 3, 5}), Factors({7})}, "grad_w"}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

std::vector<MeasuredCase> MeasuredWith(DType dtype, bool backward) {
  return MeasuredAtExtents(dtype, {}, [backward](const TensorType& x) {
    const TensorType number{x.dtype, {1}}, fixed{DType::kF32, {1}};
    Types types = {x, number, number, fixed, fixed};
    if (backward) types.insert(types.begin(), x);
    return types;
  });
}
std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredWith(dtype, false);
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredWith(dtype, true);
}

}  // namespace

const OpRule kXieluRule = {.kind = OpKind::kMemory,  // some operands are numbers for all elements
                           .infer = Infer,
                           .gradient = Gradient,
                           .shard = ShardOperands,
                           .flow = &kForwardFlow,
                           .cost = ForwardCost,
                           .recompute = RecomputeCost::kCheap,
                           .measured = Measured};
const OpRule kXieluBackwardRule = {.kind = OpKind::kMemory,
                                   .attributes = kBackwardAttributes,
                                   .infer = InferBackward,
                                   .flow = &kBackwardFlow,
                                   .cost = BackwardCost,
                                   .workspace = BackwardWorkspace,
                                   .overwrites = Overwrites,
                                   .measured = MeasuredBackward};

}  // namespace temper
