// Append to heads: each head gets the elements that all heads share behind its own. Latent attention (DeepSeek-AI 2024;
// transformers, DeepseekV3Attention) makes keys so: what a head has of its own comes from the latents, and one rotary
// part serves all heads.
#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const int64_t heads = a.Int("heads");
  const bool good = in.size() == 2 && IsMatrix(in[0]) && IsFloat(in[0]) && IsMatrix(in[1]) &&
                    in[1].dtype == in[0].dtype && in[1].shape[0] == in[0].shape[0] && heads > 0 &&
                    heads <= in[0].shape[1] && in[0].shape[1] % heads == 0;
  if (!good) return BadOperands(Op::kAppendToHeads, "(x_T(H*N), tail_TR)", in, a);
  return Types{{in[0].dtype, {in[0].shape[0], in[0].shape[1] + heads * in[1].shape[1]}}};
}

void Gradient(GradientSink& sink) {
  if (!sink.Needs(0) && !sink.Needs(1)) return;
  const Node& node = sink.node();
  const auto outputs =
      sink.Emit(Op::kAppendToHeadsBackward, {sink.OutputGradient(0)},
                {{"heads", node.attributes.Int("heads")}, {"tail", sink.value(node.inputs[1]).type.shape[1]}});
  for (int i = 0; i < 2; ++i) {
    if (sink.Needs(i)) sink.Contribute(i, outputs[static_cast<size_t>(i)]);
  }
}

// Whole heads on each rank, of all the tokens that the tail has; each rank appends the whole tail to its own.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding x = sink.Settled(sink.sharding(0));
  for (const Axis axis : (x.split(0) & kTensorAxes).axes()) x = Gathered(x, 0, axis);
  const int64_t heads = node.attributes.Int("heads"), parts = sink.mesh().size(x.split(1));
  if (heads % parts != 0) {
    return sink.Refuse(fmt::format("{} heads do not divide among {} ranks of {}", heads, parts, x.split(1).ToString()));
  }
  Sharding tail = x;
  tail.varying |= tail.split(1);
  tail.dims[1].clear();
  const ValueId of_x = sink.Use(0, x), of_tail = sink.Use(1, tail);
  sink.Deliver(0, sink.Emit(Op::kAppendToHeads, {of_x, of_tail}, {{"heads", heads / parts}}, {x})[0]);
}

Result<Types> InferBackward(const Types& in, const Attributes& a) {
  const int64_t heads = a.Int("heads"), tail = a.Int("tail");
  const bool good = in.size() == 1 && IsMatrix(in[0]) && IsFloat(in[0]) && heads > 0 && tail > 0 &&
                    in[0].shape[1] % heads == 0 && in[0].shape[1] / heads > tail;
  if (!good) return BadOperands(Op::kAppendToHeadsBackward, "d_y_T(H*(N+R))", in, a);
  const int64_t tokens = in[0].shape[0];
  return Types{{in[0].dtype, {tokens, in[0].shape[1] - heads * tail}}, {in[0].dtype, {tokens, tail}}};
}

Cost CostOf(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 0);
}

constexpr AttributeSpec kAttributes[] = {Size("heads")};
constexpr AttributeSpec kBackwardAttributes[] = {Size("heads"), Size("tail")};

constexpr FlowOperand kForwardIn[] = {LinearIn("TH"), LinearIn("Te")};
constexpr FlowOutput kForwardOut[] = {{"TH", {Factors({0}), Factors({1})}}};
constexpr FlowRule kForwardFlow = {.in = kForwardIn, .out = kForwardOut};
constexpr FlowOperand kBackwardIn[] = {LinearIn("TH")};
constexpr FlowOutput kBackwardOut[] = {{"TH", {Factors({0})}}, {"Te", {Factors({0})}}};
constexpr FlowRule kBackwardFlow = {.in = kBackwardIn, .out = kBackwardOut};

}  // namespace

const OpRule kAppendToHeadsRule = {.kind = OpKind::kMemory,
                                   .attributes = kAttributes,
                                   .infer = Infer,
                                   .gradient = Gradient,
                                   .shard = ShardOperands,
                                   .flow = &kForwardFlow,
                                   .cost = CostOf,
                                   .recompute = RecomputeCost::kCheap};
const OpRule kAppendToHeadsBackwardRule = {.kind = OpKind::kMemory,
                                           .attributes = kBackwardAttributes,
                                           .infer = InferBackward,
                                           .flow = &kBackwardFlow,
                                           .cost = CostOf};

}  // namespace temper
