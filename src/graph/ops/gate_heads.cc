// A gate for each head: the logistic function of a number scales all elements of its head (transformers,
// Lfm3Attention, whose g_proj gives the numbers).
#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool AreHeads(const TensorType& x, const TensorType& gate) {
  return IsMatrix(x) && IsFloat(x) && IsMatrix(gate) && gate.dtype == x.dtype && gate.shape[0] == x.shape[0] &&
         gate.shape[1] > 0 && x.shape[1] % gate.shape[1] == 0;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() == 2 && AreHeads(in[0], in[1])) return Types{in[0]};
  return BadOperands(Op::kGateHeads, "(x_T(H*E), gate_TH)", in, a);
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const Node& node = sink.node();
  const auto outputs = sink.Emit(Op::kGateHeadsBackward, {sink.OutputGradient(0), node.inputs[0], node.inputs[1]}, {});
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

// Whole heads on each rank, with their gates.
void ShardOperands(ShardingSink& sink) {
  const Sharding x = sink.Settled(sink.sharding(0));
  const int64_t heads = sink.value(sink.node().inputs[1]).type.shape[1], parts = sink.mesh().size(x.split(1));
  if (heads % parts != 0) {
    return sink.Refuse(fmt::format("{} heads do not divide among {} ranks of {}", heads, parts, x.split(1).ToString()));
  }
  const ValueId of_x = sink.Use(0, x), gate = sink.Use(1, x);
  sink.Deliver(0, sink.Emit(Op::kGateHeads, {of_x, gate}, {}, {x})[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() == 3 && in[0] == in[1] && AreHeads(in[1], in[2])) return Types{in[1], in[2]};
  return BadOperands(Op::kGateHeadsBackward, "(d_y_T(H*E), x_T(H*E), gate_TH)", in, a);
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 3);
}

constexpr FlowOperand kForwardIn[] = {LinearIn("TH"), {"TH"}};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0, 1})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH"), {"TH"}, {"TH"}};
constexpr FlowOutput kBackwardOut[] = {{"TH", {Factors({0, 2})}}, {"TH", {Factors({0, 1, 2})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

}  // namespace

const OpRule kGateHeadsRule = {.kind = OpKind::kMemory,
                               .infer = Infer,
                               .gradient = Gradient,
                               .shard = ShardOperands,
                               .flow = &kForwardFlow,
                               .cost = ForwardCost,
                               .in_place_input = 0,
                               .recompute = RecomputeCost::kCheap};
const OpRule kGateHeadsBackwardRule = {
    .kind = OpKind::kMemory, .infer = InferBackward, .flow = &kBackwardFlow, .cost = BackwardCost};

}  // namespace temper
