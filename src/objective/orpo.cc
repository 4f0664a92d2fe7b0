// Odds ratio preference optimization (Hong 2024): the cross-entropy of the chosen answer with its prompt, and a term
// that raises its odds above those of the rejected one. As TRL's ORPOTrainer computes it.
#include <array>

#include "objective/pair_loss.h"

namespace temper {
namespace {

constexpr std::array kOrpoColumns = {kTargetColumn,        kNextColumn,        kReferenceColumn,
                                     kDocumentStartColumn, kSampleStartColumn, kNllScaleColumn};

void EvaluateOrpo(const Tail& tail) {
  AddPairLoss(tail, PreferenceKind::kOrpo, /*trains=*/false);
}

void TrainOrpo(const Tail& tail) {
  AddPairLoss(tail, PreferenceKind::kOrpo, /*trains=*/true);
}

constexpr std::array<ObjectiveGraph, 2> kOrpoGraphs = {
    {{ProgramKind::kTrain, TrainOrpo}, {ProgramKind::kEval, EvaluateOrpo}}};

}  // namespace

const ObjectiveRule& Orpo() {
  static constexpr ObjectiveRule kOrpoRule =
      PairRule({.name = "orpo",
                .help = "the chosen of two answers as it is, and rather than the rejected one",
                .columns = kOrpoColumns,
                .graphs = kOrpoGraphs,
                .nll = ObjectiveRule::Nll::kWhole,
                .pair_settings = &TaskSettings::orpo,
                .reports = kPairReports});
  return kOrpoRule;
}

}  // namespace temper
