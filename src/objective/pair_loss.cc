#include "objective/pair_loss.h"

#include <utility>
#include <vector>

#include "graph/named_ops.h"

namespace temper {

void AddPairLoss(const Tail& tail, PairLoss loss, bool trains) {
  const bool whole = tail.rule.nll == ObjectiveRule::Nll::kWhole;
  // The op tells answers by their own targets, also where all tokens are predicted.
  const ColumnSpec& predicted = whole ? kNextColumn : kTargetColumn;
  std::vector<ValueId> inputs = {tail.Logprob("logprob", /*stored=*/false, predicted), tail.Column(kTargetColumn),
                                 tail.Column(kReferenceColumn), tail.Column(kDocumentStartColumn),
                                 tail.Column(kSampleStartColumn)};
  const bool nll = loss.nll_weight != 0, odds = loss.attributes.Flag("odds");
  if (nll) {
    inputs.push_back(tail.Column(kNllScaleColumn));
    loss.attributes.Set("nll", int64_t{1});
    loss.attributes.Set("nll_weight", loss.nll_weight);
    if (whole) loss.attributes.Set("whole", int64_t{1});
  }
  const std::vector<ValueId> outputs =
      tail.f.Add(Op::kPreference, std::move(inputs), std::move(loss.attributes), kPairOutputs[0]);
  constexpr size_t kOfAll = 6;
  for (size_t k = 1; k < outputs.size(); ++k) {
    Value& value = tail.f.graph().value(outputs[k]);
    value.name = kPairOutputs[k < kOfAll || nll || !odds ? k : k + 1];
    value.role = Role::kOutput;
  }
  if (!trains) return;
  auto [operands, attributes] = tail.Head(predicted);
  operands.push_back(outputs[0]);
  attributes.Set("weighted", int64_t{1});
  tail.f.Add(Op::kLinearCrossEntropy, std::move(operands), std::move(attributes), "weighted_loss");
}

}  // namespace temper
