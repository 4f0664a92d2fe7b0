// LayerNorm: y = (x - mean) * rstd * w + b over the last dim, variance without Bessel's correction (Ba et al. 2016;
// torch). plus_one: 1 + w in the place of w (transformers, NemotronLayerNorm1P).
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 3 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !IsFloatVector(in[1], in[0].shape[1]) ||
      !(in[2] == in[1])) {
    return BadOperands(Op::kLayerNorm, "(x_TD, w_D, b_D)", in, a);
  }
  const TensorType statistic{StatisticDType(in[0].dtype), {in[0].shape[0]}};
  return Types{in[0], statistic, statistic};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 7);
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  const bool grad_w = sink.Needs(1), grad_b = sink.Needs(2);
  if (!sink.Needs(0) && !grad_w) return;
  TEMPER_CHECK(grad_w || !grad_b) << "the bias of a layer_norm is trained without its weight";
  std::vector<ValueId> inputs = {sink.OutputGradient(0), node.inputs[0], node.inputs[1], node.outputs[1],
                                 node.outputs[2]};
  const ValueId acc = sink.Needs(0) ? sink.Pending(0) : kNoValue;
  // Of a norm whose bias is constant nothing pends for it: its weight's gradient is added up by a node of its own.
  const bool acc_w = grad_b && sink.Pending(1) != kNoValue;
  if (acc != kNoValue) inputs.push_back(acc);
  if (acc_w) inputs.insert(inputs.end(), {sink.Pending(1), sink.Pending(2)});
  Attributes attributes = {{"acc", int64_t{acc != kNoValue}}, {"grad_w", int64_t{grad_w}}, {"acc_w", int64_t{acc_w}}};
  if (node.attributes.Flag("plus_one")) attributes.Set("plus_one", int64_t{1});
  const auto outputs = sink.Emit(Op::kLayerNormBackward, inputs, std::move(attributes));
  if (sink.Needs(0)) sink.Deliver(0, outputs[0]);
  if (grad_b) {
    sink.Deliver(1, outputs[1]);
    sink.Deliver(2, outputs[2]);
  } else if (grad_w) {
    sink.Contribute(1, outputs[1]);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const size_t want = 5 + a.Flag("acc") + 2 * a.Flag("acc_w");
  if (in.size() != want || !IsMatrix(in[0]) || !IsFloat(in[0]) || !(in[0] == in[1]) ||
      !IsFloatVector(in[2], in[0].shape[1]) || !IsStatistic(in[3], in[0]) || !IsStatistic(in[4], in[0]) ||
      (a.Flag("acc") && !(in[5] == in[0]))) {
    return BadOperands(Op::kLayerNormBackward, "(d_y_TD, x_TD, w_D, mean_T, rstd_T, [acc_TD], [acc_w_D, acc_b_D])", in,
                       a);
  }
  Types out = {in[0]};
  const TensorType d_w{GradientDType(in[0].dtype), in[2].shape};
  if (a.Flag("grad_w")) out.insert(out.end(), {d_w, d_w});
  if (a.Flag("acc_w") && !(a.Flag("grad_w") && in.back() == d_w && in[in.size() - 2] == d_w))
    return BadOperands(Op::kLayerNormBackward, "acc like d_w, d_b", in, a);
  return out;
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 12);
}

// d_w and d_b are summed by fixed blocks of rows: two partial rows per 64 rows.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes& a, int) {
  if (!a.Flag("grad_w")) return {};
  return {2 * ((in[0].shape[0] + 63) / 64) * in[0].shape[1] * SizeOf(GradientDType(in[0].dtype))};
}

// d_x over acc, d_w over acc_w, d_b over acc_b.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  if (output == 0) return a.Flag("acc") ? 5 : -1;
  return a.Flag("acc_w") ? num_inputs - 3 + output : -1;
}

constexpr AttributeSpec kAttributes[] = {Double("eps"), Flag("plus_one")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), Flag("grad_w"), Flag("acc_w"), Flag("plus_one")};

constexpr FlowOperand kForwardIn[] = {{"Td"}, {"d"}, {"d"}};
constexpr FlowOutput kForwardOut[] = {{"Td", {Factors({0, 1, 2})}}, {"T", {Factors({0})}}, {"T", {Factors({0})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {
    LinearIn("Td"), {"Td"}, {"d"}, {"T"}, {"T"}, LinearIn("Td", "acc"), LinearIn("d", "acc_w"), LinearIn("d", "acc_w")};
constexpr FlowOutput kBackwardOut[] = {{"Td", {Factors({0, 1, 2, 3, 4}), Factors({5})}},
                                       {"d", {Factors({0, 1, 3, 4}), Factors({6})}, "grad_w"},
                                       {"d", {Factors({0}), Factors({7})}, "grad_w"}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"eps", 1e-5}}, [](const TensorType& x) {
    const TensorType w{x.dtype, {x.shape[1]}};
    return Types{x, w, w};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {{"acc", int64_t{1}}, {"grad_w", int64_t{0}}, {"acc_w", int64_t{0}}},
                           [](const TensorType& x) {
                             const TensorType statistic{DType::kF32, {x.shape[0]}};
                             return Types{x, x, {x.dtype, {x.shape[1]}}, statistic, statistic, x};
                           });
}

}  // namespace

const OpRule kLayerNormRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = ShardNorm,
                               .flow = &kForwardFlow,
                               .cost = ForwardCost,
                               .recompute = RecomputeCost::kCheap,
                               .measured = Measured};
const OpRule kLayerNormBackwardRule = {.kind = OpKind::kMemory,
                                       .attributes = kBackwardAttributes,
                                       .infer = InferBackward,
                                       .flow = &kBackwardFlow,
                                       .cost = BackwardCost,
                                       .workspace = BackwardWorkspace,
                                       .in_place_input = 5,
                                       .overwrites = Overwrites,
                                       .measured = MeasuredBackward};

}  // namespace temper
