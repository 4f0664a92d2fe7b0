// Preference: what a pair of answers costs, and how much the log-probability of each of their tokens changes that.
// A sample is a chosen answer, then a rejected one, each a document; sample_start tells which belong together. With the
// sums s of an answer's log-probabilities, r of the reference's, z = (s_chosen - r_chosen) - (s_rejected - r_rejected),
// beta = b, smoothing = e, and m, which is z of means over an answer's tokens in place of sums:
//
//   sigmoid       -log sigmoid(b z)                                                Rafailov 2023, DPO
//   hinge         max(0, 1 - b z)                                                  Zhao 2023, SLiC-HF
//   ipo           (m - 1 / 2b)^2                                                   Azar 2023, IPO
//   robust        (-(1 - e) log sigmoid(b z) + e log sigmoid(-b z)) / (1 - 2e)     Chowdhury 2024, rDPO
//   sigmoid_norm  -log sigmoid(b m)                                                Lambert 2024, Tulu 3
//   simpo         -(1 - e) log sigmoid(b m - g) - e log sigmoid(g - b m)           Meng 2024, SimPO; gamma = g
//   orpo          -b log sigmoid(o), o = log odds(p) - log odds(q)                 Hong 2024, ORPO
//
// SimPO and ORPO have no reference: theirs is 0. p and q are exp(s / count), the mean likelihoods of the chosen and the
// rejected answer, odds(p) = p / (1 - p).
//
// With `nll` the loss has the cross-entropy of the chosen answer's tokens, too, times nll_weight and nll_scale (the
// latter makes a sum over a batch a mean over its tokens, tensor/column.h); with `whole` that of its prompt's as well.
//
// weight_T = -d loss / d logprob_T, so that the cross-entropy of all tokens with these weights has the gradient of the
// loss: the op itself has none. A reward is b (s - r), of simpo and orpo b s / count, as TRL's trainers report it. Sums
// are rounded to f32, as the reference's are, so that z of an unchanged model is 0.
#include "graph/ops/preference_kind.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const size_t nll = a.Flag("nll") ? 1 : 0;
  const bool vectors =
      in.size() == 5 + nll && in[0].shape.rank() == 1 && (in[0].dtype == DType::kF32 || in[0].dtype == DType::kF64);
  const int64_t T = vectors ? in[0].shape[0] : 0;
  if (!vectors || !IsIndex(in[1], T) || !(in[2] == TensorType{DType::kF32, {T}}) || !IsIndex(in[3], T) ||
      !IsIndex(in[4], T) || (nll == 1 && !(in[5] == TensorType{DType::kF32, {T}})) ||
      FindPreference(a.String("kind")) == nullptr || !(a.Double("beta") > 0) || !(a.DoubleOr("smoothing", 0) >= 0) ||
      !(a.DoubleOr("smoothing", 0) < 0.5)) {
    return BadOperands(
        Op::kPreference,
        "(logprob_T, target_T, reference_T f32, document_start_T, sample_start_T, [nll_scale_T f32]), a known kind, "
        "beta > 0, "
        "smoothing from 0 to 0.5",
        in, a);
  }
  return Types(6 + nll + (a.Flag("odds") ? 2 : 0), in[0]);
}

// Rows are dealt whole; of a row that ranks share, a rank has only parts of the answers.
void ShardOperands(ShardingSink& sink) {
  const Sharding target = sink.sharding(1);
  if (target.DimOf(Axis::kCp) >= 0) {
    return sink.Refuse(
        "cp splits rows between ranks, and a pair of answers has to be whole on one: use mesh.fsdp, mesh.dp, mesh.tp "
        "or "
        "mesh.pp instead of mesh.cp");
  }
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < sink.node().inputs.size(); ++i) inputs.push_back(sink.Use(static_cast<int>(i), target));
  const size_t count = sink.node().outputs.size();
  const std::vector<ValueId> outputs =
      sink.Emit(Op::kPreference, std::move(inputs), sink.node().attributes, std::vector<Sharding>(count, target));
  for (size_t i = 0; i < count; ++i) sink.Deliver(static_cast<int>(i), outputs[i]);
}

Cost CostOfPairs(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 4);
}

constexpr AttributeSpec kAttributes[] = {String("kind"),          Double("beta"), OptionalDouble("smoothing"),
                                         OptionalDouble("gamma"), Flag("nll"),    OptionalDouble("nll_weight"),
                                         Flag("whole"),           Flag("odds")};

constexpr FlowOperand kIn[] = {{"T"}, {"T"}, {"T"}, {"T"}, {"T"}, {"T", false, "nll"}};
constexpr uint16_t kAll = Factors({0, 1, 2, 3, 4, 5});
constexpr FlowOutput kOut[] = {{"T", {kAll}},        {"T", {kAll}},         {"T", {kAll}},
                               {"T", {kAll}},        {"T", {kAll}},         {"T", {kAll}},
                               {"T", {kAll}, "nll"}, {"T", {kAll}, "odds"}, {"T", {kAll}, "odds"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut, .together = Axis::kCp};

}  // namespace

const OpRule kPreferenceRule = {.kind = OpKind::kMemory,
                                .attributes = kAttributes,
                                .infer = Infer,
                                .shard = ShardOperands,
                                .flow = &kFlow,
                                .cost = CostOfPairs};

}  // namespace temper
