#include <gtest/gtest.h>

#include <algorithm>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper::classify_test {
namespace {

Graph TailOf(ProgramKind kind) {
  Graph graph;
  GraphBuilder f(&graph);
  const ValueId x = f.Source("x", {DType::kF32, {8, 4}}, Role::kInput),
                w = f.Source("w", {DType::kF32, {3, 4}}, Role::kWeight);
  Classify().graph(kind).tail({.rule = Classify(), .f = f, .tokens = 8, .x_TD = x, .w_VD = w});
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  return graph;
}

bool HasOutput(const Graph& graph, std::string_view name) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return graph.value(id).name == name && graph.value(id).role == Role::kOutput;
    });
  });
}

// One root: the cross-entropy of words, on labels.
TEST(Classify, LearnsLabelsAsIfTheyWereWords) {
  for (const ProgramKind kind : {ProgramKind::kTrain, ProgramKind::kEval}) {
    const Graph graph = TailOf(kind);
    ASSERT_EQ(graph.roots().size(), 1u);
    const auto loss = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                   [](const Node& node) { return node.op == Op::kLinearCrossEntropy; });
    ASSERT_NE(loss, graph.nodes().end());
    EXPECT_EQ(graph.roots()[0].loss, loss->outputs[0]);
    EXPECT_EQ(graph.value(loss->inputs[2]).name, "label");
    for (const ReportSpec& report : Classify().reports) EXPECT_TRUE(HasOutput(graph, report.output)) << report.output;
    EXPECT_TRUE(HasOutput(graph, kPredictionOutput));
  }
}

TEST(Classify, ScoresWithoutLabels) {
  const Graph graph = TailOf(ProgramKind::kScore);
  EXPECT_TRUE(HasOutput(graph, kClassLogitsOutput));
  GraphBuilder f(const_cast<Graph*>(&graph));
  EXPECT_EQ(f.FindInput("label"), kNoValue);
}

}  // namespace
}  // namespace temper::classify_test
