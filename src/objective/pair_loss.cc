#include "objective/pair_loss.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/named_ops.h"

namespace temper {

void AddPairLoss(const Tail& tail, PreferenceKind kind, bool trains) {
  const PreferenceFacts& loss = FactsOf(kind);
  const bool whole = tail.rule.nll == ObjectiveRule::Nll::kWhole;
  // The op tells answers by their own targets, also where all tokens are predicted.
  const ColumnSpec& predicted = whole ? kNextColumn : kTargetColumn;
  std::vector<ValueId> inputs = {tail.Logprob("logprob", /*stored=*/false, predicted), tail.Column(kTargetColumn),
                                 tail.Column(kReferenceColumn), tail.Column(kDocumentStartColumn),
                                 tail.Column(kSampleStartColumn)};
  const PreferenceSettings& settings = tail.settings.tasks.*tail.rule.pair_settings;
  Attributes attributes = {{"kind", std::string(loss.name)}, {"beta", settings.beta}};
  if (settings.gamma != 0) attributes.Set("gamma", settings.gamma);
  if (settings.label_smoothing != 0) attributes.Set("smoothing", settings.label_smoothing);
  if (loss.of_odds) attributes.Set("odds", int64_t{1});
  const bool nll = settings.nll_weight != 0;
  if (nll) {
    inputs.push_back(tail.Column(kNllScaleColumn));
    attributes.Set("nll", int64_t{1});
    attributes.Set("nll_weight", settings.nll_weight);
    if (whole) attributes.Set("whole", int64_t{1});
  }
  const std::vector<ValueId> outputs =
      tail.f.Add(Op::kPreference, std::move(inputs), std::move(attributes), kPairOutputs[0]);
  constexpr size_t kOfAll = 6;
  for (size_t k = 1; k < outputs.size(); ++k) {
    Value& value = tail.f.graph().value(outputs[k]);
    value.name = kPairOutputs[k < kOfAll || nll || !loss.of_odds ? k : k + 1];
    value.role = Role::kOutput;
  }
  if (!trains) return;
  auto [operands, of_head] = tail.Head(predicted);
  operands.push_back(outputs[0]);
  of_head.Set("weighted", int64_t{1});
  tail.f.Add(Op::kLinearCrossEntropy, std::move(operands), std::move(of_head), "weighted_loss");
}

}  // namespace temper
