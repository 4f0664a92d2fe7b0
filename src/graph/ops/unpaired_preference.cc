// Unpaired preference: what an answer that is rated good or bad costs, and how much the log-probability of each of its
// tokens changes that (Ethayarajh 2024, KTO; TRL's KTOTrainer). A sample is one answer, a document. With the sums s of
// its log-probabilities and r of the reference's, beta = b, and kl, what a batch's answers gain on other prompts:
//
//   good   w_good (1 - sigmoid(b (s - r - kl)))        bad   w_bad (1 - sigmoid(b (kl - s + r)))
//
// rating_T is, at all tokens of an answer, the batch's samples divided by those that are rated alike, and negative for
// bad ones: a mean over samples of rewards times that is the mean over the good, or the bad ones. A reward is b (s -
// r). weight_T = -d loss / d logprob_T, as preference has it: the op has no gradient. Sums are rounded to f32, as the
// reference's are.
#include <fmt/core.h>

#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

constexpr size_t kOutputsOfAnswers = 6;

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool vectors =
      in.size() == 6 && in[0].shape.rank() == 1 && (in[0].dtype == DType::kF32 || in[0].dtype == DType::kF64);
  const int64_t T = vectors ? in[0].shape[0] : 0;
  const TensorType numbers{DType::kF32, {T}};
  if (!vectors || !IsIndex(in[1], T) || !(in[2] == numbers) || !IsIndex(in[3], T) || !(in[4] == numbers) ||
      !(in[5] == numbers) || !(a.Double("beta") > 0) || !(a.Double("good_weight") >= 0) ||
      !(a.Double("bad_weight") >= 0)) {
    return BadOperands(
        Op::kUnpairedPreference,
        "(logprob_T, target_T, reference_T f32, document_start_T, rating_T f32, kl_T f32), beta > 0, weights from 0 on",
        in, a);
  }
  return Types(kOutputsOfAnswers, in[0]);
}

void ShardOperands(ShardingSink& sink) {
  const Sharding target = sink.sharding(1);
  if (target.DimOf(Axis::kCp) >= 0) {
    return sink.Refuse(
        "cp splits rows between ranks, and an answer has to be whole on one: use mesh.fsdp, mesh.dp, mesh.tp or "
        "mesh.pp instead of mesh.cp");
  }
  std::vector<ValueId> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(sink.Use(i, target));
  const std::vector<ValueId> outputs = sink.Emit(Op::kUnpairedPreference, std::move(inputs), sink.node().attributes,
                                                 std::vector<Sharding>(kOutputsOfAnswers, target));
  for (size_t i = 0; i < kOutputsOfAnswers; ++i) sink.Deliver(static_cast<int>(i), outputs[i]);
}

Cost CostOfAnswers(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 4);
}

constexpr AttributeSpec kAttributes[] = {Double("beta"), Double("good_weight"), Double("bad_weight")};

constexpr FlowOperand kIn[] = {{"T"}, {"T"}, {"T"}, {"T"}, {"T"}, {"T"}};
constexpr uint16_t kAll = Factors({0, 1, 2, 3, 4, 5});
constexpr FlowOutput kOut[] = {{"T", {kAll}}, {"T", {kAll}}, {"T", {kAll}},
                               {"T", {kAll}}, {"T", {kAll}}, {"T", {kAll}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut, .together = Axis::kCp};

}  // namespace

const OpRule kUnpairedPreferenceRule = {.kind = OpKind::kMemory,
                                        .attributes = kAttributes,
                                        .infer = Infer,
                                        .shard = ShardOperands,
                                        .flow = &kFlow,
                                        .cost = CostOfAnswers};

}  // namespace temper
