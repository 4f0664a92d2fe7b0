// Direct preference optimization, a cross-entropy whose weights are known after a forward pass: the preference op turns
// the log-probabilities of both answers into -d loss / d logprob of each token, and linear_cross_entropy with these
// weights makes the gradients. The price is the head's logits once more.
#include <array>

#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 2> kParts = {"chosen", "rejected"};
constexpr std::array kPairColumns = {kTargetColumn, kReferenceColumn, kDocumentStartColumn, kSampleStartColumn};
constexpr const char* kPairOutputs[] = {"weight_of_pair", "loss", "chosen", "rejected", "accuracy", "margin"};
constexpr std::array<ReportSpec, 5> kPairReports = {{{"loss", kPairOutputs[1]},
                                                     {"rewards/chosen", kPairOutputs[2]},
                                                     {"rewards/rejected", kPairOutputs[3]},
                                                     {"rewards/accuracies", kPairOutputs[4]},
                                                     {"rewards/margins", kPairOutputs[5]}}};

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

// Returns the weight of each token.
ValueId AddPreference(const Tail& tail) {
  const PreferenceSettings& settings = tail.settings.preference;
  Attributes attributes = {{"kind", std::string(KindOf(settings.loss))}, {"beta", settings.beta}};
  if (settings.label_smoothing != 0) attributes.Set("smoothing", settings.label_smoothing);
  const std::vector<ValueId> outputs =
      tail.f.Add(Op::kPreference,
                 {tail.Logprob("logprob", /*stored=*/false), tail.Column(kTargetColumn), tail.Column(kReferenceColumn),
                  tail.Column(kDocumentStartColumn), tail.Column(kSampleStartColumn)},
                 std::move(attributes), kPairOutputs[0]);
  for (size_t k = 1; k < outputs.size(); ++k) {
    Value& value = tail.f.graph().value(outputs[k]);
    value.name = kPairOutputs[k];
    value.role = Role::kOutput;
  }
  return outputs[0];
}

void AddEvaluation(const Tail& tail) {
  AddPreference(tail);
}

void AddTraining(const Tail& tail) {
  const ValueId weight = AddPreference(tail);
  auto [inputs, attributes] = tail.Head();
  inputs.push_back(weight);
  attributes.Set("weighted", int64_t{1});
  tail.f.Add(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), "weighted_loss");
}

void AddReference(const Tail& tail) {
  tail.Logprob(kLogprobOutput, /*stored=*/true);
}

constexpr std::array<ObjectiveGraph, 3> kPairGraphs = {
    {{ProgramKind::kTrain, AddTraining}, {ProgramKind::kEval, AddEvaluation}, {ProgramKind::kReference, AddReference}}};

}  // namespace

const ObjectiveRule& Dpo() {
  static constexpr ObjectiveRule kRule{.name = "dpo",
                                       .help = "the chosen of two answers rather than the rejected one",
                                       .parts = kParts,
                                       .columns = kPairColumns,
                                       .graphs = kPairGraphs,
                                       .mean = ObjectiveRule::Mean::kSamples,
                                       .reports = kPairReports};
  return kRule;
}

}  // namespace temper
