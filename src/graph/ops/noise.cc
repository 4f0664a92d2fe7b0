// Noise: y = x + magnitude * (2 u - 1), u_i drawn by counter as dropout's (draws.h), so that recomputing it gives the
// same noise on any mesh. It does not depend on x: the gradient passes as it is. NEFTune's noise on embeddings.
#include "graph/ops/draws.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  if (!GoodDraws(in, a) || !(a.Double("magnitude") >= 0)) {
    return BadOperands(Op::kNoise, "(x, rng i64[3]), magnitude >= 0, columns of x within `columns`, rows in chunks", in,
                       a);
  }
  return Types{in[0]};
}

void Gradient(GradientSink& sink) {
  if (sink.Needs(0)) sink.Contribute(0, sink.OutputGradient(0));
}

// Unlike dropout it is not linear in x: terms of a sum are added up first.
void ShardOperands(ShardingSink& sink) {
  ShardDraws(sink, sink.Settled(sink.sharding(0)));
}

constexpr AttributeSpec kAttributes[] = {Double("magnitude"),     OptionalSize("row"),        OptionalSize("column"),
                                         OptionalSize("columns"), OptionalSize("packed_row"), OptionalSize("drawn_row"),
                                         OptionalSize("ranks"),   OptionalSize("index")};

constexpr FlowOperand kIn[] = {{"TD"}, {""}};
constexpr FlowOutput kOut[] = {{"TD", {Factors({0})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

}  // namespace

const OpRule kNoiseRule = {.kind = OpKind::kElementwise,
                           .attributes = kAttributes,
                           .infer = Infer,
                           .gradient = Gradient,
                           .shard = ShardOperands,
                           .flow = &kFlow,
                           .cost = DrawsCost,
                           .in_place_input = 0,
                           .recompute = RecomputeCost::kCheap,
                           .random = true,
                           .measured_as = Op::kDropout};

}  // namespace temper
