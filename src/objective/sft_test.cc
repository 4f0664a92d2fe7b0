#include <gtest/gtest.h>

#include "objective/objective.h"

namespace temper::sft_test {
namespace {

Graph TailOf(const ObjectiveSettings& settings, double softcap) {
  Graph graph;
  GraphBuilder f(&graph);
  const ValueId x = f.Source("x", {DType::kF32, {8, 4}}, Role::kInput),
                w = f.Source("w", {DType::kF32, {16, 4}}, Role::kWeight);
  Sft().tail({.f = f, .tokens = 8, .x_TD = x, .w_VD = w, .softcap = softcap, .settings = settings});
  return graph;
}

TEST(Sft, HasOneLossWhoseColumnsItStates) {
  for (const bool weighted : {false, true}) {
    const Graph graph = TailOf({.weighted = weighted, .label_smoothing = 0.1}, 30);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    ASSERT_EQ(graph.nodes().size(), 1u);
    const Node& loss = graph.nodes()[0];
    EXPECT_EQ(loss.op, Op::kLinearCrossEntropy);
    EXPECT_EQ(graph.value(loss.outputs[0]).name, Sft().loss());
    EXPECT_EQ(loss.attributes.Double("softcap"), 30);
    EXPECT_EQ(loss.attributes.Double("smoothing"), 0.1);
    EXPECT_EQ(loss.inputs.size(), weighted ? 4u : 3u);
    for (size_t i = 2; i < loss.inputs.size(); ++i) {
      const Value& column = graph.value(loss.inputs[i]);
      EXPECT_EQ(column.name, Sft().columns[i - 2].name);
      EXPECT_EQ(column.type.dtype, Sft().columns[i - 2].dtype);
    }
  }
}

}  // namespace
}  // namespace temper::sft_test
