#include <gtest/gtest.h>

#include "graph/named_ops.h"
#include "objective/objective.h"

namespace temper::sft_test {
namespace {

Graph TailOf(const ObjectiveSettings& settings, double softcap) {
  Graph graph;
  GraphBuilder f(&graph);
  const ValueId x = f.Source("x", {DType::kF32, {8, 4}}, Role::kInput),
                w = f.Source("w", {DType::kF32, {16, 4}}, Role::kWeight);
  Sft()
      .graph(ProgramKind::kTrain)
      .tail({.rule = Sft(), .f = f, .tokens = 8, .x_TD = x, .w_VD = w, .softcap = softcap, .settings = settings});
  return graph;
}

TEST(Sft, HasOneLossWhoseColumnsItStates) {
  for (const bool weighted : {false, true}) {
    const Graph graph = TailOf({.weighted = weighted, .label_smoothing = 0.1}, 30);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    ASSERT_EQ(graph.nodes().size(), 1u);
    const Node& loss = graph.nodes()[0];
    EXPECT_EQ(loss.op, Op::kLinearCrossEntropy);
    EXPECT_EQ(graph.value(loss.outputs[0]).name, Sft().reports[0].output);
    EXPECT_EQ(loss.attributes.Double("softcap"), 30);
    EXPECT_EQ(loss.attributes.Double("smoothing"), 0.1);
    EXPECT_EQ(loss.inputs.size(), weighted ? 4u : 3u);
    EXPECT_EQ(graph.value(loss.inputs[2]).name, "target");
    if (weighted) {
      EXPECT_EQ(graph.value(loss.inputs[3]).name, "weight");
    }
  }
}

TEST(Sft, WithAccuracyReportsHitsBesideTheSameLoss) {
  ASSERT_NE(Sft().with_accuracy, nullptr);
  const ObjectiveRule& rule = *Sft().with_accuracy;
  EXPECT_EQ(rule.name, Sft().name);
  ASSERT_EQ(rule.reports.size(), 2u);
  EXPECT_EQ(rule.reports[1].name, "token_accuracy");
  for (const ProgramKind kind : {ProgramKind::kTrain, ProgramKind::kEval}) {
    Graph graph;
    GraphBuilder f(&graph);
    const ValueId x = f.Source("x", {DType::kF32, {8, 4}}, Role::kInput),
                  w = f.Source("w", {DType::kF32, {16, 4}}, Role::kWeight);
    rule.graph(kind).tail({.rule = rule, .f = f, .tokens = 8, .x_TD = x, .w_VD = w});
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    const Node& loss = graph.nodes()[0];
    ASSERT_EQ(loss.outputs.size(), 2u);
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(graph.value(loss.outputs[k]).name, rule.reports[k].output);
      EXPECT_EQ(graph.value(loss.outputs[k]).role, Role::kOutput);
    }
    EXPECT_EQ(graph.roots().size(), 1u);
  }
  EXPECT_FALSE(TailOf({}, 0).nodes()[0].attributes.Has("correct")) << "Programs of other runs would change";
}

TEST(SftDeathTest, ATailDeclaresOnlyColumnsThatItsRuleStates) {
  Graph graph;
  GraphBuilder f(&graph);
  const Tail tail{.rule = Sft(), .f = f, .tokens = 8};
  EXPECT_DEATH((void)tail.Column(kPositionColumn), "objective sft does not state its column position");
}

}  // namespace
}  // namespace temper::sft_test
