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

TEST(SftDeathTest, ATailDeclaresOnlyColumnsThatItsRuleStates) {
  Graph graph;
  GraphBuilder f(&graph);
  const Tail tail{.rule = Sft(), .f = f, .tokens = 8};
  EXPECT_DEATH((void)tail.Column(kPositionColumn), "objective sft does not state its column position");
}

}  // namespace
}  // namespace temper::sft_test
