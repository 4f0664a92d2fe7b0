// Direct preference optimization, a cross-entropy whose weights are known after a forward pass: the preference op turns
// the log-probabilities of both answers into -d loss / d logprob of each token, and linear_cross_entropy with these
// weights makes the gradients. The price is the head's logits once more.
#include <array>

#include "objective/pair_loss.h"

namespace temper {
namespace {

void AddDpoLoss(const Tail& tail, bool trains) {
  AddPairLoss(tail, tail.settings.tasks.dpo.loss, trains);
}

void EvaluateDpo(const Tail& tail) {
  AddDpoLoss(tail, /*trains=*/false);
}

void TrainDpo(const Tail& tail) {
  AddDpoLoss(tail, /*trains=*/true);
}

void AddReference(const Tail& tail) {
  tail.Logprob(kLogprobOutput, /*stored=*/true);
}

constexpr std::array<ObjectiveGraph, 3> kDpoGraphs = {
    {{ProgramKind::kTrain, TrainDpo}, {ProgramKind::kEval, EvaluateDpo}, {ProgramKind::kReference, AddReference}}};

constexpr ObjectiveRule DpoRule(const ObjectiveRule* with_nll) {
  return {.name = "dpo",
          .help = "the chosen of two answers rather than the rejected one",
          .graphs = kDpoGraphs,
          .with_nll = with_nll,
          .pair_settings = &TaskSettings::dpo};
}

constexpr ObjectiveRule kDpoWithNll = PairRuleWithNll(DpoRule(nullptr));
constexpr ObjectiveRule kDpoRule = PairRule(DpoRule(&kDpoWithNll));

}  // namespace

const ObjectiveRule& Dpo() {
  return kDpoRule;
}

}  // namespace temper
