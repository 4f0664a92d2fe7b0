// SwiGLU: h = silu(gate) * up, silu(x) = x / (1 + exp(-x)) (Shazeer 2020; transformers, LlamaMLP).
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !(in[0] == in[1]) || !IsFloat(in[0]))
    return BadOperands(Op::kSwiglu, "(gate, up) alike", in, a);
  return Types{in[0]};
}
Cost ForwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 12);
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const Node& node = sink.node();
  const auto outputs = sink.Emit(Op::kSwigluBackward, {sink.OutputGradient(0), node.inputs[0], node.inputs[1]}, {});
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  if (in.size() != 3 || !(in[0] == in[1]) || !(in[1] == in[2]) || !IsFloat(in[0])) {
    return BadOperands(Op::kSwigluBackward, "(d_h, gate, up) alike", in, a);
  }
  return Types{in[1], in[2]};
}
Cost BackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 18);
}

}  // namespace

const OpRule kSwigluRule = {.infer = Infer, .gradient = Gradient, .shard = ShardElementwise, .cost = ForwardCost};
const OpRule kSwigluBackwardRule = {.infer = InferBackward, .cost = BackwardCost, .in_place_input = 1};

}  // namespace temper
