// Kahneman-Tversky optimization (Ethayarajh 2024): answers that are rated good or bad, each alone, compared with the
// model as it was before, and with what a batch's answers have gained on other prompts (kKlColumn). As TRL's KTOTrainer
// computes it.
#include <array>
#include <utility>
#include <vector>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array kKtoColumns = {kTargetColumn, kReferenceColumn, kDocumentStartColumn, kRatingColumn, kKlColumn};
constexpr std::array<const char*, 6> kKtoOutputs = {"weight_of_answer", "loss",   "chosen",
                                                    "rejected",         "margin", "kl_of_step"};
constexpr std::array<ReportSpec, 5> kKtoReports = {{{"loss", kKtoOutputs[1], false},
                                                    {"rewards/chosen", kKtoOutputs[2]},
                                                    {"rewards/rejected", kKtoOutputs[3], false},
                                                    {"rewards/margins", kKtoOutputs[4]},
                                                    {"kl", kKtoOutputs[5], false}}};

// Returns the weight of each token.
ValueId AddKto(const Tail& tail) {
  const UnpairedSettings& settings = tail.settings.tasks.kto;
  const std::vector<ValueId> outputs =
      tail.f.Add(Op::kUnpairedPreference,
                 {tail.Logprob("logprob", /*stored=*/false), tail.Column(kTargetColumn), tail.Column(kReferenceColumn),
                  tail.Column(kDocumentStartColumn), tail.Column(kRatingColumn), tail.Column(kKlColumn)},
                 {{"beta", settings.beta},
                  {"good_weight", settings.desirable_weight},
                  {"bad_weight", settings.undesirable_weight}},
                 kKtoOutputs[0]);
  for (size_t k = 1; k < outputs.size(); ++k) {
    Value& value = tail.f.graph().value(outputs[k]);
    value.name = kKtoOutputs[k];
    value.role = Role::kOutput;
  }
  return outputs[0];
}

void EvaluateKto(const Tail& tail) {
  AddKto(tail);
}

void TrainKto(const Tail& tail) {
  const ValueId weight = AddKto(tail);
  auto [inputs, attributes] = tail.Head();
  inputs.push_back(weight);
  attributes.Set("weighted", int64_t{1});
  tail.f.Add(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), "weighted_loss");
}

void AddKtoReference(const Tail& tail) {
  tail.Logprob(kLogprobOutput, /*stored=*/true);
}

constexpr std::array<ObjectiveGraph, 3> kKtoGraphs = {
    {{ProgramKind::kTrain, TrainKto}, {ProgramKind::kEval, EvaluateKto}, {ProgramKind::kReference, AddKtoReference}}};

}  // namespace

const ObjectiveRule& Kto() {
  static constexpr ObjectiveRule kRule{.name = "kto",
                                       .help = "answers that are rated good, and not those rated bad",
                                       .rows = RowUse::kRated,
                                       .columns = kKtoColumns,
                                       .graphs = kKtoGraphs,
                                       .mean = ObjectiveRule::Mean::kSamples,
                                       .prefers = true,
                                       .rated = true,
                                       .reports = kKtoReports};
  return kRule;
}

}  // namespace temper
