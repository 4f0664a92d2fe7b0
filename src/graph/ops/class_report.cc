// Class report: of each token with a label the class of the greatest logit (of several the first), and whether that is
// the label. Without a gradient: it is reported, not learned from.
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool good = in.size() == 2 && IsMatrix(in[0]) && in[0].shape[1] > 0 &&
                    (in[0].dtype == DType::kF32 || in[0].dtype == DType::kF64) && IsIndex(in[1], in[0].shape[0]);
  if (!good) return BadOperands(Op::kClassReport, "(logits_TV f32, label_T)", in, a);
  const TensorType of_token{in[0].dtype, {in[0].shape[0]}};
  return Types{of_token, of_token};
}

// A rank reports its tokens, of all classes.
void ShardOperands(ShardingSink& sink) {
  const Sharding label = sink.sharding(1);
  Sharding logits = sink.Settled(sink.sharding(0));
  for (const Axis axis : logits.split(1).axes()) logits = Gathered(logits, 1, axis);
  for (const Axis axis : (logits.split(0) - label.split(0)).axes()) logits = Gathered(logits, 0, axis);
  const std::vector<ValueId> outputs =
      sink.Emit(Op::kClassReport, {sink.Use(0, logits), sink.Use(1, label)}, sink.node().attributes, {label, label});
  for (int i = 0; i < 2; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
}

Cost CostOfReport(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 1);
}

constexpr FlowOperand kIn[] = {{"Tv"}, {"T"}};
constexpr uint16_t kBoth = Factors({0, 1});
constexpr FlowOutput kOut[] = {{"T", {kBoth}}, {"T", {kBoth}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

}  // namespace

const OpRule kClassReportRule = {
    .kind = OpKind::kMemory, .infer = Infer, .shard = ShardOperands, .flow = &kFlow, .cost = CostOfReport};

}  // namespace temper
