// Dropout: y = x * mask / (1-p), mask_i = [u_i >= p] with u drawn by counter from (seed, the value's name, step, place
// in the batch), so that recomputing it gives the same mask and its backward is the same op applied to the gradient.
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsFloat(in[0]) || in[1].dtype != DType::kI64 || !IsVector(in[1], kNumRngWords) ||
      !(a.Double("p") >= 0 && a.Double("p") < 1)) {
    return BadOperands(Op::kDropout, "(x, rng i64[3]) and 0 <= p < 1", in, a);
  }
  return Types{in[0]};
}
// Philox costs about 60 integer operations per four elements.
Cost DropoutCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 16);
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  // The emitted node inherits the forward node's rng_name, hence its mask.
  sink.Contribute(0,
                  sink.Emit(Op::kDropout, {sink.OutputGradient(0), sink.node().inputs[1]}, sink.node().attributes)[0]);
}

constexpr AttributeSpec kAttributes[] = {Double("p")};

}  // namespace

const OpRule kDropoutRule = {
    .attributes = kAttributes, .infer = Infer, .gradient = Gradient, .cost = DropoutCost, .in_place_input = 0};

}  // namespace temper
