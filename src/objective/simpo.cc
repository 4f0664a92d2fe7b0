// Simple preference optimization (Meng 2024): a pair costs by the mean log-probabilities of its answers and a margin
// that these are to differ by, without a model to compare with. TRL's CPOTrainer with loss_type simpo.
#include <array>

#include "objective/pair_loss.h"

namespace temper {
namespace {

void EvaluateSimpo(const Tail& tail) {
  AddPairLoss(tail, PreferenceKind::kSimpo, /*trains=*/false);
}

void TrainSimpo(const Tail& tail) {
  AddPairLoss(tail, PreferenceKind::kSimpo, /*trains=*/true);
}

constexpr std::array<ObjectiveGraph, 2> kSimpoGraphs = {
    {{ProgramKind::kTrain, TrainSimpo}, {ProgramKind::kEval, EvaluateSimpo}}};

constexpr ObjectiveRule SimpoRule(const ObjectiveRule* with_nll) {
  return {.name = "simpo",
          .help = "the chosen of two answers rather than the rejected one, by their mean likelihoods",
          .graphs = kSimpoGraphs,
          .with_nll = with_nll,
          .pair_settings = &TaskSettings::simpo};
}

constexpr ObjectiveRule kSimpoWithNll = PairRuleWithNll(SimpoRule(nullptr));
constexpr ObjectiveRule kSimpoRule = PairRule(SimpoRule(&kSimpoWithNll));

}  // namespace

const ObjectiveRule& Simpo() {
  return kSimpoRule;
}

}  // namespace temper
