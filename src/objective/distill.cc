// Distillation on given answers: the divergence of each supervised token's distribution from a frozen teacher's. The
// teacher's forward pass is part of the same graph (model/teacher.h), so its weights and activations are planned like
// all others; only its last hidden states reach the loss, which makes the logits of both, chunk by chunk.
#include <array>
#include <utility>
#include <vector>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper {
namespace {

constexpr std::array kDistillColumns = {kTargetColumn, kWeightColumn};
constexpr std::array<ReportSpec, 1> kDistillReports = {{{"loss", "loss", false}}};

void AddDivergence(const Tail& tail) {
  const DistillSettings& settings = tail.settings.tasks.distill;
  const TeacherHead& teacher = tail.settings.teacher;
  const DType dtype = tail.f.type(tail.x_TD).dtype.compute();
  const int64_t words = tail.f.type(tail.w_VD).shape[0];
  auto [inputs, attributes] = tail.Head();
  attributes.Set("beta", settings.beta);
  attributes.Set("temperature", settings.temperature);
  inputs.push_back(tail.f.Source(kTeacherHidden, {dtype, {tail.tokens, teacher.width}}, Role::kInput));
  inputs.push_back(tail.f.Source(kTeacherHeadWeight, {dtype, {words, teacher.width}}, Role::kWeight));
  if (teacher.softcap != 0) attributes.Set("teacher_softcap", teacher.softcap);
  if (teacher.bias) {
    inputs.push_back(tail.f.Source(kTeacherHeadBias, {dtype, {words}}, Role::kWeight));
    attributes.Set("teacher_bias", int64_t{1});
  }
  if (tail.settings.weighted) {
    inputs.push_back(tail.Column(kWeightColumn));
    attributes.Set("weighted", int64_t{1});
  }
  tail.f.Add(Op::kLinearDistillation, std::move(inputs), std::move(attributes), kDistillReports[0].output,
             Role::kOutput);
}

constexpr std::array<ObjectiveGraph, 2> kDistillGraphs = {
    {{ProgramKind::kTrain, AddDivergence}, {ProgramKind::kEval, AddDivergence}}};

}  // namespace

const ObjectiveRule& Distill() {
  static constexpr ObjectiveRule kRule{.name = "distill",
                                       .help = "each word's distribution in a teacher",
                                       .columns = kDistillColumns,
                                       .graphs = kDistillGraphs,
                                       .distills = true,
                                       .reports = kDistillReports};
  return kRule;
}

}  // namespace temper
