#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array kColumns = {kTargetColumn, kWeightColumn};
constexpr std::array<ReportSpec, 2> kReports = {{{"loss", "loss", false}, {"token_accuracy", "correct", true}}};

void AddLossAndReport(const Tail& tail, bool accuracy) {
  auto [inputs, attributes] = tail.Head();
  if (tail.settings.label_smoothing != 0) attributes.Set("smoothing", tail.settings.label_smoothing);
  if (tail.settings.weighted) {
    inputs.push_back(tail.Column(kWeightColumn));
    attributes.Set("weighted", int64_t{1});
  }
  if (accuracy) attributes.Set("correct", int64_t{1});
  const std::vector<ValueId> outputs =
      tail.f.Add(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), kReports[0].output, Role::kOutput);
  if (!accuracy) return;
  Value& correct = tail.f.graph().value(outputs[1]);
  correct.name = kReports[1].output;
  correct.role = Role::kOutput;
}

void AddLoss(const Tail& tail) {
  AddLossAndReport(tail, /*accuracy=*/false);
}
void AddLossAndAccuracy(const Tail& tail) {
  AddLossAndReport(tail, /*accuracy=*/true);
}

constexpr std::array<ObjectiveGraph, 2> kGraphs = {{{ProgramKind::kTrain, AddLoss}, {ProgramKind::kEval, AddLoss}}};
constexpr std::array<ObjectiveGraph, 2> kGraphsWithAccuracy = {
    {{ProgramKind::kTrain, AddLossAndAccuracy}, {ProgramKind::kEval, AddLossAndAccuracy}}};

constexpr ObjectiveRule SftRuleOf(std::span<const ObjectiveGraph> graphs, size_t reports,
                                  const ObjectiveRule* with_accuracy) {
  return {.name = "sft",
          .help = "the answers as they are",
          .columns = kColumns,
          .graphs = graphs,
          .with_accuracy = with_accuracy,
          .reports = std::span(kReports).first(reports)};
}

constexpr ObjectiveRule kSftWithAccuracy = SftRuleOf(kGraphsWithAccuracy, 2, nullptr);
constexpr ObjectiveRule kSftRule = SftRuleOf(kGraphs, 1, &kSftWithAccuracy);

}  // namespace

const ObjectiveRule& Sft() {
  return kSftRule;
}

}  // namespace temper
