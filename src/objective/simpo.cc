// Simple preference optimization (Meng 2024): a pair costs by the mean log-probabilities of its answers and a margin
// that these are to differ by, without a model to compare with. TRL's CPOTrainer with loss_type simpo.
#include <array>
#include <span>
#include <string>
#include <utility>

#include "objective/pair_loss.h"

namespace temper {
namespace {

constexpr std::array kSimpoColumns = {kTargetColumn, kReferenceColumn, kDocumentStartColumn, kSampleStartColumn,
                                      kNllScaleColumn};

void AddSimpoLoss(const Tail& tail, bool trains) {
  const PreferenceSettings& settings = tail.settings.preference;
  Attributes attributes = {{"kind", std::string("simpo")}, {"beta", settings.beta}, {"gamma", settings.gamma}};
  if (settings.label_smoothing != 0) attributes.Set("smoothing", settings.label_smoothing);
  AddPairLoss(tail, {.attributes = std::move(attributes), .nll_weight = settings.nll_weight}, trains);
}

void EvaluateSimpo(const Tail& tail) {
  AddSimpoLoss(tail, /*trains=*/false);
}

void TrainSimpo(const Tail& tail) {
  AddSimpoLoss(tail, /*trains=*/true);
}

constexpr std::array<ObjectiveGraph, 2> kSimpoGraphs = {
    {{ProgramKind::kTrain, TrainSimpo}, {ProgramKind::kEval, EvaluateSimpo}}};

constexpr ObjectiveRule SimpoRuleOf(size_t reports, ObjectiveRule::Nll nll, const ObjectiveRule* with_nll) {
  return {.name = "simpo",
          .help = "the chosen of two answers rather than the rejected one, by their mean likelihoods",
          .parts = kPairParts,
          .columns = kSimpoColumns,
          .graphs = kSimpoGraphs,
          .mean = ObjectiveRule::Mean::kSamples,
          .nll = nll,
          .with_nll = with_nll,
          .prefers = true,
          .reports = std::span(kPairReports).first(reports)};
}

constexpr ObjectiveRule kSimpoWithNll = SimpoRuleOf(6, ObjectiveRule::Nll::kAnswer, nullptr);
constexpr ObjectiveRule kSimpoRule = SimpoRuleOf(5, ObjectiveRule::Nll::kNone, &kSimpoWithNll);

}  // namespace

const ObjectiveRule& Simpo() {
  return kSimpoRule;
}

}  // namespace temper
