#include <gtest/gtest.h>

#include <algorithm>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper::dpo_test {
namespace {

Graph TailOf(ProgramKind kind, const ObjectiveRule& rule = Dpo(), double nll_weight = 0) {
  Graph graph;
  GraphBuilder f(&graph);
  const ValueId x = f.Source("x", {DType::kF32, {8, 4}}, Role::kInput),
                w = f.Source("w", {DType::kF32, {16, 4}}, Role::kWeight);
  f.TokenInput("document_start", DType::kI32, 8);  // as attention takes it
  TaskSettings tasks;
  if (nll_weight > 0) (tasks.*rule.pair_settings).nll_weight = nll_weight;
  rule.graph(kind).tail(
      {.rule = rule, .f = f, .tokens = 8, .x_TD = x, .w_VD = w, .softcap = 30, .settings = {.tasks = tasks}});
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  return graph;
}

// One root, whose weights are made by the graph itself; all reports are outputs; no input is declared twice.
TEST(Dpo, TrainsByWeightsThatItsForwardPassMakes) {
  const Graph graph = TailOf(ProgramKind::kTrain);
  ASSERT_EQ(graph.nodes().size(), 3u);
  const Node &logprob = graph.nodes()[0], &preference = graph.nodes()[1], &loss = graph.nodes()[2];
  EXPECT_EQ(logprob.op, Op::kTokenLogprob);
  EXPECT_EQ(preference.op, Op::kPreference);
  EXPECT_EQ(loss.op, Op::kLinearCrossEntropy);
  EXPECT_EQ(loss.inputs.back(), preference.outputs[0]);
  EXPECT_EQ(loss.inputs[2], logprob.inputs[2]) << "one column of targets";
  for (const Node* node : {&logprob, &loss}) EXPECT_EQ(node->attributes.Double("softcap"), 30);
  ASSERT_EQ(graph.roots().size(), 1u);
  EXPECT_EQ(graph.roots()[0].loss, loss.outputs[0]);
  std::vector<std::string> inputs;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const Value& value = graph.value(id);
    if (value.role == Role::kInput) inputs.push_back(value.name);
  }
  std::sort(inputs.begin(), inputs.end());
  EXPECT_EQ(std::adjacent_find(inputs.begin(), inputs.end()), inputs.end());
}

// Of every method that learns preferences, as its settings make it.
TEST(Dpo, AndItsRelativesReportWhatTheirRulesSay) {
  for (const ObjectiveRule* of_task : Objectives()) {
    if (!of_task->prefers) continue;
    for (const double nll_weight : {0.0, 0.5}) {
      if (nll_weight > 0 && of_task->with_nll == nullptr) continue;
      const ObjectiveRule& rule = nll_weight > 0 ? *of_task->with_nll : *of_task;
      for (const ProgramKind kind : {ProgramKind::kTrain, ProgramKind::kEval}) {
        const Graph graph = TailOf(kind, rule, nll_weight);
        EXPECT_EQ(graph.roots().size(), kind == ProgramKind::kTrain ? 1u : 0u) << "an evaluation has no gradients";
        for (const ReportSpec& report : rule.reports) {
          const bool there = std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
            return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
              return graph.value(id).name == report.output && graph.value(id).role == Role::kOutput;
            });
          });
          EXPECT_TRUE(there) << rule.name << " " << report.output;
        }
      }
    }
  }
}

TEST(Dpo, ScoresByTheLogProbabilityOfEachToken) {
  const Graph graph = TailOf(ProgramKind::kReference);
  ASSERT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(graph.value(graph.nodes()[0].outputs[0]).name, kLogprobOutput);
}

}  // namespace
}  // namespace temper::dpo_test
