// The decay of a recurrent state, in logarithms: g = -exp(A_log) * softplus(a + dt_bias), for each token and head, in
// f32 (Gu & Dao 2023, Mamba; transformers, Qwen3_5GatedDeltaNet). softplus(x) = log(1 + exp(x)). `steps`: also the
// softplus itself, the step dt by which Mamba-2 scales what it adds to a state (GraniteMoeHybridMambaLayer). `min`: of
// the softplus, at least this, and no gradient below (NemotronHMamba2Mixer).
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool AreOperands(const TensorType& a, const TensorType& a_log, const TensorType& dt_bias) {
  return IsMatrix(a) && IsFloat(a) && a_log == TensorType{a.dtype, {a.shape[1]}} && dt_bias == a_log;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 3 || !AreOperands(in[0], in[1], in[2])) {
    return BadOperands(Op::kDecay, "(a_TH, a_log_H, dt_bias_H)", in, a);
  }
  const TensorType gate{StatisticDType(in[0].dtype), in[0].shape};
  if (a.Flag("steps")) return Types{gate, gate};
  return Types{gate};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 40);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  if (!sink.Needs(0) && !sink.Needs(1) && !sink.Needs(2)) return;
  // Of the two vectors, one is trained where the other is.
  const bool grad_w = sink.Needs(1) || sink.Needs(2);
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  const bool steps = node.attributes.Flag("steps"), bounded = node.attributes.Has("min");
  if (steps) inputs.push_back(sink.OutputGradient(1));
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  const bool acc_w = grad_w && sink.Pending(1) != kNoValue && sink.Pending(2) != kNoValue;
  if (acc_w) inputs.insert(inputs.end(), {sink.Pending(1), sink.Pending(2)});
  Attributes attributes = {{"grad_w", int64_t{grad_w}}, {"acc_w", int64_t{acc_w}}};
  if (steps) attributes.Set("steps", int64_t{1});
  if (bounded) attributes.Set("min", node.attributes.Double("min"));
  const auto outputs = sink.Emit(Op::kDecayBackward, std::move(inputs), std::move(attributes));
  if (sink.Needs(0)) sink.Contribute(0, outputs[0]);
  for (int i = 1; i < 3; ++i) {
    if (!sink.Needs(i)) continue;
    const ValueId gradient = outputs[static_cast<size_t>(i)];
    acc_w ? sink.Deliver(i, gradient) : sink.Contribute(i, gradient);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t first = 1 + a.Flag("steps");  // of the forward's operands
  const bool good = in.size() == first + 3 + 2 * a.Flag("acc_w") &&
                    AreOperands(in[first], in[first + 1], in[first + 2]) &&
                    in[0] == TensorType{StatisticDType(in[first].dtype), in[first].shape} && in[first - 1] == in[0] &&
                    (a.Flag("grad_w") || !a.Flag("acc_w"));
  const TensorType d_w = good ? TensorType{GradientDType(in[first].dtype), in[first + 1].shape} : TensorType{};
  if (!good || (a.Flag("acc_w") && !(in[first + 3] == d_w && in[first + 4] == d_w))) {
    return BadOperands(Op::kDecayBackward, "(d_g_TH, [d_dt_TH], a_TH, a_log_H, dt_bias_H, [acc_a_log, acc_dt_bias])",
                       in, a);
  }
  if (a.Flag("grad_w")) return Types{in[first], d_w, d_w};
  return Types{in[first]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 60);
}

// Heads stay where they are.
void ShardOperands(ShardingSink& sink) {
  const Sharding p = sink.Settled(sink.sharding(0));
  const Sharding vector = VectorBeside(p, 1, sink.mesh());
  const std::vector<ValueId> inputs = {sink.Use(0, p), sink.Use(1, vector), sink.Use(2, vector)};
  const std::vector<Sharding> shardings(sink.node().outputs.size(), p);
  const auto outputs = sink.Emit(Op::kDecay, inputs, sink.node().attributes, shardings);
  for (size_t i = 0; i < outputs.size(); ++i) sink.Deliver(static_cast<int>(i), outputs[i]);
}

// d_a_log and d_dt_bias over what they are added to.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  return output > 0 && a.Flag("acc_w") ? num_inputs - 3 + output : -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("steps"), OptionalDouble("min")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("steps"), OptionalDouble("min"), Flag("grad_w"), Flag("acc_w")};

constexpr FlowOperand kForwardIn[] = {{"TH"}, {"H"}, {"H"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1, 2})}}, {"TH", {Factors({0, 2})}, "steps"}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"),         LinearIn("TH", "steps"), {"TH"}, {"H"}, {"H"},
                                       LinearIn("H", "acc_w"), LinearIn("H", "acc_w")};
// The step does not depend on a_log.
constexpr FlowOutput kBackwardOut[] = {{"TH", {Factors({0, 2, 3, 4}), Factors({1, 2, 4})}},
                                       {"H", {Factors({0, 2, 3, 4}), Factors({5})}, "grad_w"},
                                       {"H", {Factors({0, 2, 3, 4}), Factors({1, 2, 4}), Factors({6})}, "grad_w"}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {}, [](const TensorType& x) {
    const TensorType w{x.dtype, {x.shape[1]}};
    return Types{x, w, w};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {}, [](const TensorType& x) {
    const TensorType w{x.dtype, {x.shape[1]}};
    return Types{{DType::kF32, x.shape}, x, w, w};
  });
}

}  // namespace

const OpRule kDecayRule = {.kind = OpKind::kMemory,
                           .attributes = kAttributes,
                           .infer = Infer,
                           .gradient = Gradient,
                           .shard = ShardOperands,
                           .flow = &kForwardFlow,
                           .cost = ForwardCost,
                           .recompute = RecomputeCost::kCheap,
                           .measured = Measured};
const OpRule kDecayBackwardRule = {.kind = OpKind::kMemory,
                                   .attributes = kBackwardAttributes,
                                   .infer = InferBackward,
                                   .flow = &kBackwardFlow,
                                   .cost = BackwardCost,
                                   .overwrites = Overwrites,
                                   .measured = MeasuredBackward};

}  // namespace temper
