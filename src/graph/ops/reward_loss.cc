// Reward loss: what a pair of answers costs by their rewards, each that of the last token of an answer (Ouyang 2022;
// TRL's RewardTrainer). A sample is a chosen answer, then a rejected one, each a document; sample_start tells which
// belong together. With the margin m of a pair and the attribute center = c:
//
//   loss = -log sigmoid(r_chosen - r_rejected - m) + c (r_chosen + r_rejected)^2
//
// The loss can only be a root, so that the op makes the gradient of its sum, d_reward, right away.
//
// Tensor ranks that share tokens gather rewards: all see all pairs, and each makes the gradients of its own tokens,
// `begin` and as many as the operand own_T1 has, so that d_reward is its term of a sum.
#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const size_t own = a.Flag("own") ? 1 : 0;
  const bool there = in.size() == 4 + own && IsMatrix(in[own]) && in[own].shape[1] == 1 && IsFloat(in[own]);
  const int64_t T = there ? in[own].shape[0] : 0;
  const bool fits = own == 0 || (IsMatrix(in[0]) && in[0].dtype == in[1].dtype && in[0].shape[1] == 1 &&
                                 a.IntOr("begin", 0) + in[0].shape[0] <= T);
  if (!there || !fits || !IsIndex(in[own + 1], T) || !IsIndex(in[own + 2], T) ||
      !(in[own + 3] == TensorType{DType::kF32, {T}}) || !(a.DoubleOr("center", 0) >= 0)) {
    return BadOperands(Op::kRewardLoss,
                       "([own_T1], reward_T1, document_start_T, sample_start_T, margin_T f32), center from 0 on", in,
                       a);
  }
  Types out(5, TensorType{StatisticDType(in[own].dtype), {T}});
  if (a.Flag("grad")) out.push_back(in[own]);
  return out;
}

void Gradient(GradientSink& sink) {
  const int reward = sink.node().attributes.Flag("own") ? 1 : 0;
  if (!sink.Needs(reward)) return;
  Attributes attributes = sink.node().attributes;
  attributes.Set("grad", int64_t{1});
  sink.Contribute(reward, sink.Extend(sink.node().inputs, std::move(attributes))[0]);
}

void ShardOperands(ShardingSink& sink) {
  const Sharding tokens = sink.sharding(1);
  if (tokens.DimOf(Axis::kCp) >= 0) {
    return sink.Refuse(
        "cp splits rows between ranks, and a pair of answers has to be whole on one: use mesh.fsdp, mesh.dp, mesh.tp "
        "or mesh.pp instead of mesh.cp");
  }
  const Node& node = sink.node();
  const Sharding given = sink.Settled(sink.sharding(0));
  Sharding reward = given;
  for (const Axis axis : (given.split(0) - tokens.split(0)).axes()) {
    reward = Gathered(reward, 0, axis);
    reward.varying |= axis;
  }
  Attributes attributes = node.attributes;
  std::vector<ValueId> inputs;
  if (!(reward == given)) {
    const Shape& whole = sink.value(node.inputs[0]).type.shape;
    attributes.Set("own", int64_t{1});
    attributes.Set("begin", sink.box(whole, given).begin[0] - sink.box(whole, reward).begin[0]);
    inputs.push_back(sink.Use(0, given));
  }
  inputs.push_back(sink.Use(0, reward));
  for (int i = 1; i < 4; ++i) inputs.push_back(sink.Use(i, tokens));
  const std::vector<ValueId> outputs =
      sink.Emit(Op::kRewardLoss, std::move(inputs), std::move(attributes), std::vector<Sharding>(5, tokens));
  for (int i = 0; i < 5; ++i) sink.Deliver(i, outputs[static_cast<size_t>(i)]);
}

Cost CostOfPairs(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 2);
}

constexpr AttributeSpec kAttributes[] = {OptionalDouble("center"), Flag("grad"), Flag("own"), OptionalSize("begin")};

constexpr FlowOperand kIn[] = {LinearIn("To", "own"), SharedBy("To"), SharedBy("T"), SharedBy("T"), SharedBy("T")};
constexpr uint16_t kPair = Factors({1, 2, 3, 4});
constexpr FlowOutput kOut[] = {{"T", {kPair}}, {"T", {kPair}}, {"T", {kPair}},
                               {"T", {kPair}}, {"T", {kPair}}, {"To", {Factors({0, 1, 2, 3, 4})}, "grad", 1}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut, .together = Axis::kCp};

}  // namespace

const OpRule kRewardLossRule = {.kind = OpKind::kMemory,
                                .attributes = kAttributes,
                                .infer = Infer,
                                .gradient = Gradient,
                                .only_root = true,
                                .shard = ShardOperands,
                                .flow = &kFlow,
                                .cost = CostOfPairs,
                                .recompute = RecomputeCost::kExpensive};

}  // namespace temper
