// What tokens ask of experts, added up over tokens and blocks, and the loss that balances it (Fedus 2021, Switch
// Transformer; transformers, load_balancing_loss_func, which takes all blocks together):
//
//   expert_load   of each of L blocks and E experts the number of tokens that chose it; padding does not count
//   router_sum    of each expert the sum of its probability over tokens: the softmax of the router's logits
//   balance       E * sum over e of load_e * sum_e / n^2, n the tokens of all blocks: the loads' sum over A choices
//   each
//
// The loss is A where experts are used alike, and grows towards E. Loads have no gradient, sums have.
//
// Tensor ranks have the same tokens: each adds up the probabilities of its part of the experts (attributes begin,
// count, split), so that what they give back to the logits are terms of a sum, as what their parts of experts give.
#include "graph/ops/balance.h"

#include <fmt/core.h>

#include <utility>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

bool IsPart(const ExpertPart& part, const Attributes& a) {
  return part.count > 0 && part.begin <= part.experts && part.count <= part.experts - part.begin &&
         (a.Has("begin") || part.count == part.experts) && (!a.Has("split") || AxisSet::Parse(a.String("split")).ok());
}
bool IsLoadOfBlocks(const TensorType& t) {
  return IsMatrix(t) && t.dtype == DType::kF32;
}
bool IsNumber(const TensorType& t, DType dtype) {
  return t.dtype == dtype && IsVector(t, 1);
}

// ---- expert_load

constexpr int kLoadAcc = 3;

Result<Types> InferLoad(const Types& in, const Attributes& a) {
  const TensorType load{DType::kF32, {a.Int("blocks"), a.Int("experts")}};
  if (in.size() != 3u + a.Flag("acc") || in[0].shape.rank() != 1 || in[0].dtype != DType::kI32 || !IsMatrix(in[1]) ||
      in[1].dtype != DType::kI32 || in[1].shape.elements() != in[0].shape[0] ||
      !(in[2] == TensorType{DType::kF32, {in[1].shape[0]}}) || a.Int("experts") <= 0 ||
      a.IntOr("block", 0) >= a.Int("blocks") || (a.Flag("acc") && !(in[kLoadAcc] == load))) {
    return BadOperands(Op::kExpertLoad, "(expert_P i32, place_TA i32, present_T f32, [acc_LE f32]), a block of blocks",
                       in, a);
  }
  return Types{load};
}

// What the host reads is whole; along ranks that route alike, those of tp and ep, it is so by itself.
void ShardLoad(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding rows = sink.sharding(0), present = sink.sharding(2);
  // Ranks of ep have all routed the tokens of all.
  for (const Axis axis : (present.split(0) - rows.split(0)).axes()) present = Gathered(present, 0, axis);
  UseAlike({&rows, &present}, sink.mesh());
  std::vector<ValueId> inputs = {sink.Use(0, rows), sink.Use(1, rows), sink.Use(2, present)};
  const Sharding load{.partial = rows.split(0)};
  if (node.attributes.Flag("acc")) inputs.push_back(sink.Use(kLoadAcc, load));
  const ValueId sum = sink.Emit(Op::kExpertLoad, std::move(inputs), node.attributes, {load})[0];
  const bool is_read = sink.value(node.outputs[0]).role == Role::kOutput;
  sink.Deliver(0, is_read ? sink.Convert(sum, Sharding()) : sum);
}

// ---- router_sum

constexpr int kLogits = 0, kPresent = 1, kSumAcc = 2;

Result<Types> InferSum(const Types& in, const Attributes& a) {
  const bool logits = in.size() == 2u + a.Flag("acc") && IsMatrix(in[kLogits]) && IsFloat(in[kLogits]);
  const ExpertPart part = logits ? ExpertPartOf(in[kLogits].shape[1], a) : ExpertPart();
  const TensorType sum{logits ? StatisticDType(in[kLogits].dtype) : DType::kF32, {part.count}};
  if (!logits || !IsPart(part, a) || !(in[kPresent] == TensorType{DType::kF32, {in[kLogits].shape[0]}}) ||
      (a.Flag("acc") && !(in[kSumAcc] == sum))) {
    return BadOperands(Op::kRouterSum, "(logits_TE, present_T f32, [acc_V f32]), V of the experts", in, a);
  }
  return Types{sum};
}

// The gradient of what was added up before is handed on by a node of each block: a pipeline's runs of blocks give
// values to their neighbours alone.
void SumGradient(GradientSink& sink) {
  const Node& node = sink.node();
  const ValueId d_sum = sink.OutputGradient(0);
  if (node.attributes.Flag("acc") && sink.Needs(kSumAcc)) {
    sink.Contribute(kSumAcc, sink.Emit(Op::kScale, {d_sum}, {{"factor", 1.0}})[0]);
  }
  if (!sink.Needs(kLogits)) return;
  Attributes attributes = node.attributes;
  attributes.Set("acc", int64_t{0});
  sink.Contribute(kLogits, sink.Emit(Op::kRouterSumBackward, {d_sum, node.inputs[kLogits], node.inputs[kPresent]},
                                     std::move(attributes))[0]);
}

void ShardSum(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding logits = sink.Settled(sink.sharding(kLogits)), present = sink.sharding(kPresent), sum;
  for (const Axis axis : logits.split(1).axes()) logits = Gathered(logits, 1, axis);
  for (const Axis axis : (logits.split(0) & kTensorAxes).axes()) logits = Gathered(logits, 0, axis);
  sum.dims[0] = (sink.mesh().axes() & kTensorAxes).axes();
  sum.partial = logits.split(0);
  for (const Axis axis : sum.dims[0]) {
    logits.varying |= axis;
    present.varying |= axis;
  }
  Attributes attributes = node.attributes;
  if (!sum.dims[0].empty()) {
    const Shape& experts = sink.value(node.outputs[0]).type.shape;
    if (const int ranks = sink.mesh().size(sum.split(0)); experts[0] < ranks) {
      return sink.Refuse(fmt::format(
          "the loss that balances {} experts cannot be shared by {} tensor ranks: use fewer, or train without it",
          experts[0], ranks));
    }
    const Box part = sink.box(experts, sum);
    attributes.Set("begin", part.begin[0]);
    attributes.Set("count", part.shape[0]);
    attributes.Set("split", sum.split(0).ToString());
  }
  std::vector<ValueId> inputs = {sink.Use(kLogits, logits), sink.Use(kPresent, present)};
  if (node.attributes.Flag("acc")) inputs.push_back(sink.Use(kSumAcc, sum));
  sink.Deliver(0, sink.Emit(Op::kRouterSum, std::move(inputs), std::move(attributes), {sum})[0]);
}

// An exponential of each logit.
Cost SumCost(const Types& in, const Types& out, const Attributes&) {
  Cost cost = ElementwiseCost(in, out, 0);
  cost.flops = {static_cast<double>(in[kLogits].shape.elements()) * 10};
  return cost;
}
// Of a thread: a token's scores. Of each block of tokens: its sums.
Bytes SumWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  const int64_t blocks = (in[kLogits].shape[0] + kRouterSumTokens - 1) / kRouterSumTokens;
  return AlignUp(Bytes{(blocks * out[0].shape[0] + threads * in[kLogits].shape[1]) * 4}, 64);
}

Result<Types> InferSumBackward(const Types& in, const Attributes& a) {
  const bool logits = in.size() == 3 && IsMatrix(in[1]) && IsFloat(in[1]) && in[0].shape.rank() == 1;
  const ExpertPart part = logits ? ExpertPartOf(in[1].shape[1], in[0].shape[0], a) : ExpertPart();
  if (!logits || !IsPart(part, a) || in[0].dtype != StatisticDType(in[1].dtype) ||
      a.IntOr("count", part.count) != part.count || !(in[2] == TensorType{DType::kF32, {in[1].shape[0]}})) {
    return BadOperands(Op::kRouterSumBackward, "(d_sum_V f32, logits_TE, present_T f32), V of the experts", in, a);
  }
  return Types{in[1]};
}
Cost SumBackwardCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 14);
}
Bytes SumBackwardWorkspace(const Types& in, const Types&, const Attributes&, int threads) {
  return AlignUp(Bytes{in[1].shape[1] * threads * 4}, 64);
}

// ---- balance

Result<Types> InferBalance(const Types& in, const Attributes& a) {
  const bool good = in.size() == 2 && IsLoadOfBlocks(in[0]) && in[1].shape.rank() == 1 && IsFloat(in[1]);
  if (!good || in[1].dtype != StatisticDType(in[1].dtype) || a.Int("active") <= 0 ||
      !IsPart(ExpertPartOf(in[0].shape[1], in[1].shape[0], a), a)) {
    return BadOperands(Op::kBalance, "(load_LE f32, sum_V f32), V of the experts, active", in, a);
  }
  return Types{{in[1].dtype, {1}}};
}

void BalanceGradient(GradientSink& sink) {
  const Node& node = sink.node();
  if (!sink.Needs(1)) return;
  Attributes attributes = node.attributes;
  attributes.Set("count", sink.value(node.inputs[1]).type.shape[0]);
  sink.Contribute(1,
                  sink.Emit(Op::kBalanceBackward, {sink.OutputGradient(0), node.inputs[0]}, std::move(attributes))[0]);
}

void ShardBalance(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding sum = sink.sharding(1);
  sum.partial = {};
  Attributes attributes = node.attributes;
  if (!sum.dims[0].empty()) {
    attributes.Set("begin", sink.box(sink.value(node.inputs[1]).type.shape, sum).begin[0]);
    attributes.Set("split", sum.split(0).ToString());
  }
  const ValueId part = sink.Emit(Op::kBalance, {sink.Use(0, Sharding()), sink.Use(1, sum)}, std::move(attributes),
                                 {{.partial = sum.split(0)}})[0];
  sink.Deliver(0, sink.Convert(part, Sharding()));
}

Cost BalanceCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 2);
}

Result<Types> InferBalanceBackward(const Types& in, const Attributes& a) {
  const bool good = in.size() == 2 && IsFloat(in[0]) && IsNumber(in[0], StatisticDType(in[0].dtype)) &&
                    IsLoadOfBlocks(in[1]) && a.Int("active") > 0;
  if (!good || !IsPart(ExpertPartOf(in[1].shape[1], a), a)) {
    return BadOperands(Op::kBalanceBackward, "(d_loss f32, load_LE f32), V of the experts, active", in, a);
  }
  return Types{{in[0].dtype, {a.Int("count")}}};
}

constexpr AttributeSpec kLoadAttributes[] = {Size("blocks"), Size("experts"), OptionalSize("block"), Flag("acc")};
constexpr AttributeSpec kSumAttributes[] = {Flag("acc"), OptionalSize("begin"), OptionalSize("count"),
                                            OptionalString("split")};
constexpr AttributeSpec kBalanceAttributes[] = {Size("active"), OptionalSize("begin"), OptionalString("split")};
constexpr AttributeSpec kBalanceBackwardAttributes[] = {Size("active"), OptionalSize("begin"), Size("count"),
                                                        OptionalString("split")};

constexpr FlowOperand kLoadIn[] = {{"T"}, {"Ta"}, {"T"}, LinearIn("be", "acc")};
constexpr FlowOutput kLoadOut[] = {{"be", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kLoadFlow = {.in = kLoadIn, .out = kLoadOut};
constexpr FlowOperand kSumIn[] = {{"Te"}, {"T"}, LinearIn("V", "acc")};
constexpr FlowOutput kSumOut[] = {{"V", {Factors({0, 1}), Factors({2})}}};
constexpr FlowRule kSumFlow = {.in = kSumIn, .out = kSumOut, .part = 'V', .part_axes = "split"};
constexpr FlowOperand kSumBackwardIn[] = {LinearIn("V"), {"Te"}, {"T"}};
constexpr FlowOutput kSumBackwardOut[] = {{"Te", {Factors({0, 1, 2})}}};
constexpr FlowRule kSumBackwardFlow = {.in = kSumBackwardIn, .out = kSumBackwardOut, .part = 'V', .part_axes = "split"};
constexpr FlowOperand kBalanceIn[] = {{"be"}, LinearIn("V")};
constexpr FlowOutput kBalanceOut[] = {{"", {Factors({0, 1})}}};
constexpr FlowRule kBalanceFlow = {.in = kBalanceIn, .out = kBalanceOut, .part = 'V', .part_axes = "split"};
constexpr FlowOperand kBalanceBackwardIn[] = {LinearIn(""), {"be"}};
constexpr FlowOutput kBalanceBackwardOut[] = {{"V", {Factors({0, 1})}}};
constexpr FlowRule kBalanceBackwardFlow = {
    .in = kBalanceBackwardIn, .out = kBalanceBackwardOut, .part = 'V', .part_axes = "split"};

}  // namespace

const OpRule kExpertLoadRule = {.kind = OpKind::kMemory,
                                .attributes = kLoadAttributes,
                                .infer = InferLoad,
                                .shard = ShardLoad,
                                .flow = &kLoadFlow,
                                .cost = BalanceCost,
                                .in_place_input = kLoadAcc};
const OpRule kRouterSumRule = {.kind = OpKind::kMemory,
                               .attributes = kSumAttributes,
                               .infer = InferSum,
                               .gradient = SumGradient,
                               .shard = ShardSum,
                               .flow = &kSumFlow,
                               .cost = SumCost,
                               .workspace = SumWorkspace,
                               .in_place_input = kSumAcc,
                               .recompute = RecomputeCost::kCheap};
const OpRule kRouterSumBackwardRule = {.kind = OpKind::kMemory,
                                       .attributes = kSumAttributes,
                                       .infer = InferSumBackward,
                                       .flow = &kSumBackwardFlow,
                                       .cost = SumBackwardCost,
                                       .workspace = SumBackwardWorkspace};
const OpRule kBalanceRule = {.kind = OpKind::kMemory,
                             .attributes = kBalanceAttributes,
                             .infer = InferBalance,
                             .gradient = BalanceGradient,
                             .shard = ShardBalance,
                             .flow = &kBalanceFlow,
                             .cost = BalanceCost,
                             .recompute = RecomputeCost::kCheap};
const OpRule kBalanceBackwardRule = {.kind = OpKind::kMemory,
                                     .attributes = kBalanceBackwardAttributes,
                                     .infer = InferBalanceBackward,
                                     .flow = &kBalanceBackwardFlow,
                                     .cost = BalanceCost};

}  // namespace temper
