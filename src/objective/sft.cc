#include <array>
#include <string>
#include <utility>
#include <vector>

#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array kColumns = {kTargetColumn, kWeightColumn};
constexpr std::array<ReportSpec, 1> kReports = {{{"loss", "loss", false}}};

void AddLoss(const Tail& tail) {
  auto [inputs, attributes] = tail.Head();
  if (tail.settings.label_smoothing != 0) attributes.Set("smoothing", tail.settings.label_smoothing);
  if (tail.settings.weighted) {
    inputs.push_back(tail.Column(kWeightColumn));
    attributes.Set("weighted", int64_t{1});
  }
  tail.f.Add(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), kReports[0].output, Role::kOutput);
}

constexpr std::array<ObjectiveGraph, 2> kGraphs = {{{ProgramKind::kTrain, AddLoss}, {ProgramKind::kEval, AddLoss}}};

}  // namespace

const ObjectiveRule& Sft() {
  static constexpr ObjectiveRule kRule{
      .name = "sft", .help = "the answers as they are", .columns = kColumns, .graphs = kGraphs, .reports = kReports};
  return kRule;
}

}  // namespace temper
