// Odds ratio preference optimization (Hong 2024): the cross-entropy of the chosen answer with its prompt, and a term
// that raises its odds above those of the rejected one. As TRL's ORPOTrainer computes it.
#include <array>
#include <string>

#include "objective/pair_loss.h"

namespace temper {
namespace {

constexpr std::array kOrpoColumns = {kTargetColumn,        kNextColumn,        kReferenceColumn,
                                     kDocumentStartColumn, kSampleStartColumn, kNllScaleColumn};

void AddOrpoLoss(const Tail& tail, bool trains) {
  AddPairLoss(
      tail,
      {.attributes = {{"kind", std::string("orpo")}, {"beta", tail.settings.preference.beta}, {"odds", int64_t{1}}},
       .nll_weight = 1},
      trains);
}

void EvaluateOrpo(const Tail& tail) {
  AddOrpoLoss(tail, /*trains=*/false);
}

void TrainOrpo(const Tail& tail) {
  AddOrpoLoss(tail, /*trains=*/true);
}

constexpr std::array<ObjectiveGraph, 2> kOrpoGraphs = {
    {{ProgramKind::kTrain, TrainOrpo}, {ProgramKind::kEval, EvaluateOrpo}}};

}  // namespace

const ObjectiveRule& Orpo() {
  static constexpr ObjectiveRule kOrpoRule{
      .name = "orpo",
      .help = "the chosen of two answers as it is, and rather than the rejected one",
      .parts = kPairParts,
      .columns = kOrpoColumns,
      .graphs = kOrpoGraphs,
      .mean = ObjectiveRule::Mean::kSamples,
      .nll = ObjectiveRule::Nll::kWhole,
      .prefers = true,
      .reports = kPairReports};
  return kOrpoRule;
}

}  // namespace temper
