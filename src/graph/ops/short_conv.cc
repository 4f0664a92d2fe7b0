// A short causal convolution of each channel along its document: y[t] = f(sum over j of w[L-1-j] * x[t-j] [+ bias]),
// j < L taps, over tokens of t's document alone; f: the identity (transformers, Lfm2ShortConv), or silu(u) = u / (1 +
// exp(-u)) (Qwen3_5GatedDeltaNet, the conv1d of Mamba-2). The last tap meets the token itself. The backward makes u
// again.
#include "graph/ops/short_conv.h"
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool IsTaps(const TensorType& w, const TensorType& x_TC) {
  return w.shape.rank() == 3 && w.dtype == x_TC.dtype && w.shape[0] == x_TC.shape[1] && w.shape[1] == 1 &&
         w.shape[2] >= 1 && w.shape[2] <= kMaxConvTaps;
}
bool IsBias(const TensorType& b, const TensorType& x_TC) {
  return b == TensorType{x_TC.dtype, {x_TC.shape[1]}};
}
bool AreOperands(const TensorType& x, const TensorType& w, const TensorType& document_start) {
  return IsMatrix(x) && IsFloat(x) && IsTaps(w, x) && IsIndex(document_start, x.shape[0]);
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool bias = a.Flag("bias");
  if (in.size() != size_t{3} + bias || !AreOperands(in[0], in[1], in[2]) || (bias && !IsBias(in[3], in[0]))) {
    return BadOperands(Op::kShortConv, "(x_TC, w_C1L, document_start_T, [bias_C]), L at most 8", in, a);
  }
  return Types{in[0]};
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes& a) {
  return ElementwiseCost(in, out, 2.0 * static_cast<double>(in[1].shape[2]) + (a.Flag("silu") ? 12 : 0));
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const bool bias = node.attributes.Flag("bias");
  // The bias is trained where the taps are.
  const bool grad_w = sink.Needs(1) || (bias && sink.Needs(3));
  if (!sink.Needs(0) && !grad_w) return;
  // d_w and d_x come from one pass; where only d_w is wanted, d_x is made and left unused.
  std::vector<ValueId> inputs = {sink.OutputGradient(0)};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  const bool acc_w = grad_w && sink.Pending(1) != kNoValue && (!bias || sink.Pending(3) != kNoValue);
  if (acc_w) inputs.push_back(sink.Pending(1));
  if (acc_w && bias) inputs.push_back(sink.Pending(3));
  Attributes attributes = {{"grad_w", int64_t{grad_w}}, {"acc_w", int64_t{acc_w}}};
  for (const char* form : {"silu", "bias"}) {
    if (node.attributes.Flag(form)) attributes.Set(form, int64_t{1});
  }
  const auto outputs = sink.Emit(Op::kShortConvBackward, inputs, std::move(attributes));
  if (sink.Needs(0)) sink.Contribute(0, outputs[0]);
  const auto give = [&](int input, size_t output) {
    if (!sink.Needs(input)) return;
    acc_w ? sink.Deliver(input, outputs[output]) : sink.Contribute(input, outputs[output]);
  };
  if (grad_w) give(1, 1);
  if (grad_w && bias) give(3, 2);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const bool bias = a.Flag("bias"), acc_w = a.Flag("acc_w");
  const size_t parameters = 1 + bias;
  const bool good = in.size() == 3 + parameters + acc_w * parameters && in[0] == in[1] &&
                    AreOperands(in[1], in[2], in[3]) && (!bias || IsBias(in[4], in[1])) && (a.Flag("grad_w") || !acc_w);
  Types out = {good ? in[1] : TensorType{}};
  if (good && a.Flag("grad_w")) out.push_back({GradientDType(in[1].dtype), in[2].shape});
  if (good && a.Flag("grad_w") && bias) out.push_back({GradientDType(in[1].dtype), in[4].shape});
  for (size_t i = 1; good && acc_w && i < out.size(); ++i) {
    if (!(in[2 + parameters + i] == out[i])) out.clear();
  }
  if (!good || out.empty()) {
    return BadOperands(Op::kShortConvBackward, "(d_y_TC, x_TC, w_C1L, document_start_T, [bias_C], [acc_w, [acc_bias]])",
                       in, a);
  }
  return out;
}

Cost BackwardCost(const Types& in, const Types& out, const Attributes& a) {
  return ElementwiseCost(in, out, 6.0 * static_cast<double>(in[2].shape[2]) + (a.Flag("silu") ? 18 : 0));
}

// Channels stay where they are; a rank sees all tokens of its rows.
void ShardOperands(ShardingSink& sink) {
  Sharding x = sink.Settled(sink.sharding(0));
  if (RefusesPartsOfRows("a convolution", x, sink)) return;
  for (const Axis axis : (x.split(0) & kTensorAxes).axes()) x = Gathered(x, 0, axis);
  const Sharding w = VectorBeside(x, 1, sink.mesh());
  Sharding start = x;
  start.varying |= start.split(1);
  start.dims[1].clear();
  std::vector<ValueId> inputs = {sink.Use(0, x), sink.Use(1, w), sink.Use(2, start)};
  if (sink.node().attributes.Flag("bias")) inputs.push_back(sink.Use(3, VectorBeside(x, 1, sink.mesh())));
  sink.Deliver(0, sink.Emit(Op::kShortConv, inputs, sink.node().attributes, {x})[0]);
}

Result<Types> InferCached(const Types& in, const Attributes& a) {
  const bool bias = a.Flag("bias");
  const bool good = in.size() == size_t{5} + bias && IsMatrix(in[0]) && IsFloat(in[0]) && IsTaps(in[1], in[0]) &&
                    in[2].shape.rank() == 3 && in[2].shape[0] > 0 &&
                    in[2] == TensorType{in[0].dtype, {in[2].shape[0], in[1].shape[2] - 1, in[0].shape[1]}} &&
                    IsIndex(in[3], in[0].shape[0]) && IsIndex(in[4], in[0].shape[0]) && (!bias || IsBias(in[5], in[0]));
  if (!good) {
    return BadOperands(Op::kShortConvCached, "(x_SC, w_C1L, state_N(L-1)C, slot_S, position_S, [bias_C])", in, a);
  }
  return Types{in[0], in[2]};
}
// The state stays where it is.
int CachedOverwrites(const Attributes&, int, int output) {
  return output == 1 ? 2 : -1;
}

// d_w and d_bias over what they are added to.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  return output > 0 && a.Flag("acc_w") ? num_inputs - 2 - a.Flag("bias") + output : -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("silu"), Flag("bias")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("silu"), Flag("bias"), Flag("grad_w"), Flag("acc_w")};

constexpr FlowOperand kForwardIn[] = {{"TC"}, {"Cil"}, {"T"}, {"C", false, "bias"}};
constexpr FlowOutput kForwardOut[] = {{"TC", {Factors({0, 1, 2, 3})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut, .together = Axis::kCp};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TC"), {"TC"}, {"Cil"}, {"T"}, LinearIn("Cil", "acc_w")};
constexpr FlowOutput kBackwardOut[] = {{"TC", {Factors({0, 1, 2, 3})}},
                                       {"Cil", {Factors({0, 1, 2, 3}), Factors({4})}, "grad_w"}};
constexpr FlowOperand kShiftedBackwardIn[] = {
    LinearIn("TC"), {"TC"}, {"Cil"}, {"T"}, {"C"}, LinearIn("Cil", "acc_w"), LinearIn("C", "acc_w")};
constexpr uint16_t kShifted = Factors({0, 1, 2, 3, 4});
constexpr FlowOutput kShiftedBackwardOut[] = {
    {"TC", {kShifted}}, {"Cil", {kShifted, Factors({5})}, "grad_w"}, {"C", {kShifted, Factors({6})}, "grad_w"}};
constexpr FlowRule kShiftedBackwardFlow = {.in = kShiftedBackwardIn, .out = kShiftedBackwardOut, .together = Axis::kCp};
constexpr FlowRule kBackwardFlow = {
    .in = kBackwardIn, .out = kBackwardOut, .together = Axis::kCp, .flag = "bias", .flagged = &kShiftedBackwardFlow};

std::vector<MeasuredCase> MeasuredWith(DType dtype, bool backward) {
  return MeasuredAtExtents(dtype, {{"silu", int64_t{1}}}, [=](const TensorType& x) {
    const TensorType w{x.dtype, {x.shape[1], 1, 4}}, start{DType::kI32, {x.shape[0]}};
    return backward ? Types{x, x, w, start} : Types{x, w, start};
  });
}
std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredWith(dtype, false);
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredWith(dtype, true);
}

}  // namespace

const OpRule kShortConvRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = ShardOperands,
                               .flow = &kForwardFlow,
                               .cost = ForwardCost,
                               .recompute = RecomputeCost::kCheap,
                               .measured = Measured};
const OpRule kShortConvBackwardRule = {.kind = OpKind::kMemory,
                                       .attributes = kBackwardAttributes,
                                       .infer = InferBackward,
                                       .flow = &kBackwardFlow,
                                       .cost = BackwardCost,
                                       .overwrites = Overwrites,
                                       .measured = MeasuredBackward};
const OpRule kShortConvCachedRule = {.kind = OpKind::kMemory,
                                     .attributes = kAttributes,
                                     .infer = InferCached,
                                     .cost = ForwardCost,
                                     .overwrites = CachedOverwrites,
                                     .rewinds = false,
                                     .measured_as = Op::kShortConv};

}  // namespace temper
