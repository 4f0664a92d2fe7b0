// Classification of sequences: the cross-entropy of a sequence's class, given its last token. The head has a row for
// each class in place of one for each word, so that linear_cross_entropy computes it: the label of a sequence is the
// target of its last token, and no other token has one.
#include <array>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array kClassColumns = {kLabelColumn};
constexpr std::array<ReportSpec, 2> kClassReports = {{{"loss", "loss", false}, {"accuracy", "correct"}}};
constexpr std::array kClassEvaluationReports = {kMacroF1, kBinaryF1};

void AddClasses(const Tail& tail) {
  const ValueId label = tail.Column(kLabelColumn);
  Attributes attributes;
  if (tail.settings.label_smoothing != 0) attributes.Set("smoothing", tail.settings.label_smoothing);
  tail.f.Add(Op::kLinearCrossEntropy, {tail.x_TD, tail.w_VD, label}, std::move(attributes), kClassReports[0].output,
             Role::kOutput);
  const std::vector<ValueId> report =
      tail.f.Add(Op::kClassReport, {tail.Logits(Role::kActivation), label}, {}, "report");
  const char* const names[] = {kPredictionOutput, kClassReports[1].output};
  for (size_t k = 0; k < report.size(); ++k) {
    Value& value = tail.f.graph().value(report[k]);
    value.name = names[k];
    value.role = Role::kOutput;
  }
}

void AddLogits(const Tail& tail) {
  tail.Logits(Role::kOutput);
}

constexpr std::array<ObjectiveGraph, 2> kClassGraphs = {
    {{ProgramKind::kTrain, AddClasses}, {ProgramKind::kEval, AddClasses}}};

}  // namespace

const ObjectiveRule& Classify() {
  static constexpr ObjectiveRule kRule{.name = "classify",
                                       .help = "the class of a text, from label",
                                       .head = ObjectiveRule::Head::kClasses,
                                       .rows = RowUse::kLabels,
                                       .columns = kClassColumns,
                                       .graphs = kClassGraphs,
                                       .score = AddLogits,
                                       .reports = kClassReports,
                                       .evaluation_reports = kClassEvaluationReports};
  return kRule;
}

}  // namespace temper
