// Dropout: y = x * mask / (1-p), mask_i = [u_i >= p] with u drawn by counter from (seed, the value's name, step, place
// in the batch: draws.h), so that recomputing it gives the same mask and its backward is the same op applied to the
// gradient.
#include "graph/ops/draws.h"
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (!GoodDraws(in, a) || !(a.Double("p") >= 0 && a.Double("p") < 1)) {
    return BadOperands(Op::kDropout, "(x, rng i64[3]), 0 <= p < 1, columns of x within `columns`, rows in chunks", in,
                       a);
  }
  return Types{in[0]};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0)) return;
  // The emitted node inherits the forward node's rng_name, hence its mask.
  sink.Contribute(0,
                  sink.Emit(Op::kDropout, {sink.OutputGradient(0), sink.node().inputs[1]}, sink.node().attributes)[0]);
}

void ShardOperands(ShardingSink& sink) {
  ShardDraws(sink, sink.sharding(0));
}

constexpr AttributeSpec kAttributes[] = {Double("p"),
                                         OptionalSize("row"),
                                         OptionalSize("column"),
                                         OptionalSize("columns"),
                                         OptionalSize("packed_row"),
                                         OptionalSize("drawn_row"),
                                         OptionalSize("ranks"),
                                         OptionalSize("index")};

// The same draws everywhere: they are keyed by an element's place in the whole.
constexpr FlowOperand kIn[] = {LinearIn("TD"), {""}};
constexpr FlowOutput kOut[] = {{"TD", {Factors({0})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

std::vector<MeasuredCase> Measured(DType dtype) {
  return MeasuredAtExtents(dtype, {{"p", 0.1}}, [](const TensorType& x) {
    return Types{x, {DType::kI64, {kNumRngWords}}};
  });
}

}  // namespace

const OpRule kDropoutRule = {.kind = OpKind::kElementwise,
                             .attributes = kAttributes,
                             .infer = Infer,
                             .gradient = Gradient,
                             .shard = ShardOperands,
                             .flow = &kFlow,
                             .cost = DrawsCost,
                             .in_place_input = 0,
                             .recompute = RecomputeCost::kCheap,
                             .random = true,
                             .measured = Measured};

}  // namespace temper
