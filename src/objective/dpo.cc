// Direct preference optimization, a cross-entropy whose weights are known after a forward pass: the preference op turns
// the log-probabilities of both answers into -d loss / d logprob of each token, and linear_cross_entropy with these
// weights makes the gradients. The price is the head's logits once more.
#include <array>
#include <span>
#include <string>
#include <utility>

#include "objective/pair_loss.h"

namespace temper {
namespace {

constexpr std::array kDpoColumns = {kTargetColumn, kReferenceColumn, kDocumentStartColumn, kSampleStartColumn,
                                    kNllScaleColumn};

const char* KindOf(PreferenceLoss loss) {
  switch (loss) {
    case PreferenceLoss::kSigmoid:
      return "sigmoid";
    case PreferenceLoss::kHinge:
      return "hinge";
    case PreferenceLoss::kIpo:
      return "ipo";
    case PreferenceLoss::kRobust:
      return "robust";
    case PreferenceLoss::kSigmoidNorm:
      return "sigmoid_norm";
  }
  return "?";
}

void AddDpoLoss(const Tail& tail, bool trains) {
  const PreferenceSettings& settings = tail.settings.preference;
  Attributes attributes = {{"kind", std::string(KindOf(settings.loss))}, {"beta", settings.beta}};
  if (settings.label_smoothing != 0) attributes.Set("smoothing", settings.label_smoothing);
  AddPairLoss(tail, {.attributes = std::move(attributes), .nll_weight = settings.nll_weight}, trains);
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

constexpr ObjectiveRule DpoRuleOf(size_t reports, ObjectiveRule::Nll nll, const ObjectiveRule* with_nll) {
  return {.name = "dpo",
          .help = "the chosen of two answers rather than the rejected one",
          .parts = kPairParts,
          .columns = kDpoColumns,
          .graphs = kDpoGraphs,
          .mean = ObjectiveRule::Mean::kSamples,
          .nll = nll,
          .with_nll = with_nll,
          .prefers = true,
          .reports = std::span(kPairReports).first(reports)};
}

constexpr ObjectiveRule kDpoWithNll = DpoRuleOf(6, ObjectiveRule::Nll::kAnswer, nullptr);
constexpr ObjectiveRule kDpoRule = DpoRuleOf(5, ObjectiveRule::Nll::kNone, &kDpoWithNll);

}  // namespace

const ObjectiveRule& Dpo() {
  return kDpoRule;
}

}  // namespace temper
