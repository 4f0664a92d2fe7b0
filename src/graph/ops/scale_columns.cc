// ScaleColumns: y = m / sqrt(q) * x, m and q of each column: DoRA's magnitudes over the norms of its rows (Liu et al.
// 2024; PEFT, DoraLinearLayer.forward). q is a constant to the gradient: d_x = m / sqrt(q) * d_y, and d_m adds up
// d_y * x / sqrt(q) over tokens. A row of zeros (q = 0) has the factor 0, where PEFT gives NaN. m and q are f32, also
// beside bf16: a magnitude that is rounded to 8 bits would change the model before it learns.
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool AreFactors(const TensorType& m, const TensorType& q, const TensorType& x) {
  const TensorType vector{StatisticDType(x.dtype), {x.shape[1]}};
  return m == vector && q == vector;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 3 || !IsMatrix(in[0]) || !IsFloat(in[0]) || !AreFactors(in[1], in[2], in[0])) {
    return BadOperands(Op::kScaleColumns, "(x_TO, m_O f32, q_O f32)", in, a);
  }
  return Types{in[0]};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const Node& node = sink.node();
  const ValueId acc = sink.Needs(1) ? sink.Pending(1) : kNoValue;
  std::vector<ValueId> inputs = {sink.OutputGradient(0), node.inputs[0], node.inputs[1], node.inputs[2]};
  if (acc != kNoValue) inputs.push_back(acc);
  Attributes attributes = {{"acc", int64_t{acc != kNoValue}}};
  if (node.attributes.Flag("minus_one")) attributes.Set("minus_one", int64_t{1});
  const auto outputs = sink.Emit(Op::kScaleColumnsBackward, std::move(inputs), std::move(attributes));
  if (sink.Needs(0)) sink.Contribute(0, outputs[0]);
  if (sink.Needs(1)) sink.Deliver(1, outputs[1]);
}

void ShardColumns(ShardingSink& sink) {
  const Sharding p = sink.Settled(sink.sharding(0)), vector = VectorBeside(p, 1, sink.mesh());
  const std::vector<ValueId> inputs = {sink.Use(0, p), sink.Use(1, vector), sink.Use(2, vector)};
  sink.Deliver(0, sink.Emit(Op::kScaleColumns, inputs, sink.node().attributes, {p})[0]);
}

Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 4u + a.Flag("acc") || !IsMatrix(in[0]) || !IsFloat(in[0]) || !(in[0] == in[1]) ||
      !AreFactors(in[2], in[3], in[0]) || (a.Flag("acc") && !(in[4] == in[2]))) {
    return BadOperands(Op::kScaleColumnsBackward, "(d_y_TO, x_TO, m_O f32, q_O f32, [acc_O])", in, a);
  }
  return Types{in[0], in[2]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 4);
}

// The factor of each column.
Bytes Workspace(const Types& in, const Types&, const Attributes&, int) {
  return in[1].bytes();
}
// That, 1/sqrt(q), and of d_m a partial row of each 64 rows, as norms have it.
Bytes BackwardWorkspace(const Types& in, const Types&, const Attributes&, int) {
  return in[2].bytes() * (2 + (in[0].shape[0] + 63) / 64);
}
int BackwardOverwrites(const Attributes& a, int, int output) {
  return output == 1 && a.Flag("acc") ? 4 : -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("minus_one")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("minus_one"), Flag("acc")};
constexpr FlowOperand kIn[] = {LinearIn("TO"), {"O"}, {"O"}};
constexpr FlowOutput kOut[] = {{"TO", {Factors({0, 1, 2})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TO"), {"TO"}, {"O"}, {"O"}, LinearIn("O", "acc")};
constexpr FlowOutput kBackwardOut[] = {{"TO", {Factors({0, 2, 3})}}, {"O", {Factors({0, 1, 3}), Factors({4})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {}, [](const TensorType& x) {
    const TensorType m{StatisticDType(x.dtype), {x.shape[1]}};
    return Types{x, m, m};
  });
}
std::vector<MeasuredCase> MeasuredBackward(DType dtype) {
  return MeasuredAtExtents(dtype, {{"acc", int64_t{0}}}, [](const TensorType& x) {
    const TensorType m{StatisticDType(x.dtype), {x.shape[1]}};
    return Types{x, x, m, m};
  });
}

}  // namespace

const OpRule kScaleColumnsRule = {.kind = OpKind::kMemory,
                                  .attributes = kAttributes,
                                  .infer = Infer,
                                  .gradient = Gradient,
                                  .shard = ShardColumns,
                                  .flow = &kFlow,
                                  .cost = ForwardCost,
                                  .workspace = Workspace,
                                  .in_place_input = 0,
                                  .recompute = RecomputeCost::kCheap,
                                  .measured = Measured};
const OpRule kScaleColumnsBackwardRule = {.kind = OpKind::kMemory,
                                          .attributes = kBackwardAttributes,
                                          .infer = InferBackward,
                                          .flow = &kBackwardFlow,
                                          .cost = BackwardCost,
                                          .workspace = BackwardWorkspace,
                                          .in_place_input = 0,
                                          .overwrites = BackwardOverwrites,
                                          .measured = MeasuredBackward};

}  // namespace temper
