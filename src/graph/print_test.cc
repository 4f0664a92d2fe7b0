#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/mutated_text_for_test.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::print_test {
namespace {

// One of everything that a line can say.
Graph Example() {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId x = build.Source("x", {DType::kBF16, {4, 6}}, Role::kInput);
  const ValueId rng = build.Source("rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
  const ValueId w = build.Source("w.weight", {DType::kBF16, {3, 6}}, Role::kWeight);
  graph.value(w).trainable = true;
  graph.value(w).update_group = 2;
  graph.value(build.Source("scale", {DType::kBF16, {6}}, Role::kWeight)).decays = true;
  graph.value(build.Source("positions", {DType::kBF16, {6, 6}}, Role::kWeight)).decays = false;
  build.EnterBlock(0, "block.");
  const ValueId dropped = build.Add(Op::kDropout, {x, rng}, {{"p", 0.1}}, "dropped")[0];
  const ValueId y = build.Add(Op::kLinear, {dropped, w}, {{"scale", 0.125}}, "y")[0];
  build.EnterBlock(kBlockAfter, "", Phase::kBackward);
  const ValueId z = build.Add(Op::kRelu, {y}, {}, "z", Role::kOutput)[0];
  graph.value(z).updates = y;
  const ValueId target = build.TokenInput("target", DType::kI32, 4);
  const ValueId seed = build.Source("seed", graph.value(dropped).type, Role::kInput);
  build.Add(Op::kLinearCrossEntropy, {dropped, w, target}, {}, "loss", Role::kOutput);
  graph.roots().push_back({dropped, seed});
  return graph;
}

TEST(GraphText, ReadsBackToTheSameGraph) {
  const Graph graph = Example();
  const std::string text = PrintGraph(graph);
  const auto back = ReadGraph(text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(PrintGraph(*back), text);
  ASSERT_EQ(back->num_values(), graph.num_values());
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    EXPECT_EQ(back->value(id).name, graph.value(id).name);
    EXPECT_EQ(back->value(id).type, graph.value(id).type);
    EXPECT_EQ(back->value(id).role, graph.value(id).role);
    EXPECT_EQ(back->value(id).trainable, graph.value(id).trainable);
    EXPECT_EQ(back->value(id).decays, graph.value(id).decays);
    EXPECT_EQ(back->value(id).update_group, graph.value(id).update_group);
    EXPECT_EQ(back->value(id).per_token, graph.value(id).per_token);
    EXPECT_EQ(back->value(id).updates, graph.value(id).updates);
  }
  ASSERT_EQ(back->nodes().size(), graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node &a = graph.nodes()[i], &b = back->nodes()[i];
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.attributes, b.attributes);
    EXPECT_EQ(a.block, b.block);
    EXPECT_EQ(a.phase, b.phase);
    EXPECT_EQ(a.rng_name, b.rng_name);
  }
  EXPECT_EQ(back->roots(), graph.roots());
  EXPECT_EQ(back->roots().size(), 2u);
  EXPECT_EQ(back->FindSource("w.weight"), graph.FindSource("w.weight"));
}

TEST(GraphText, NamesOfOpsRolesAndPhasesReadBack) {
  for (int i = 0; i < NumOps(); ++i) EXPECT_EQ(ParseOp(ToString(static_cast<Op>(i))), static_cast<Op>(i));
  for (int i = 0; i <= static_cast<int>(Role::kCache); ++i) {
    EXPECT_EQ(ParseRole(ToString(static_cast<Role>(i))), static_cast<Role>(i));
  }
  for (int i = 0; i <= static_cast<int>(Phase::kUpdate); ++i) {
    EXPECT_EQ(ParsePhase(ToString(static_cast<Phase>(i))), static_cast<Phase>(i));
  }
  EXPECT_FALSE(ParseOp("").has_value() || ParseRole("Input").has_value() || ParsePhase("forwards").has_value());
}

TEST(GraphText, AnErrorNamesTheLine) {
  std::string text = PrintGraph(Example());
  text.insert(text.find("\nvalue %1") + 1, "nonsense\n");
  const auto read = ReadGraph(text);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("line 2"), std::string::npos) << read.status().message();
}

TEST(GraphText, EveryTruncationIsRefusedOrVerifies) {
  const std::string text = PrintGraph(Example());
  for (size_t n = 0; n < text.size(); ++n) {
    const auto read = ReadGraph(text.substr(0, n));
    if (read.ok()) {
      EXPECT_TRUE(Verify(*read).ok());
    }
  }
}

TEST(GraphText, MutationsNeverCrashAndWhatIsAcceptedReadsBack) {
  MutatedText mutated(PrintGraph(Example()), 3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto read = ReadGraph(mutated.Next());
    if (!read.ok()) continue;
    ++accepted;
    const std::string printed = PrintGraph(*read);
    const auto again = ReadGraph(printed);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
    EXPECT_EQ(PrintGraph(*again), printed);
    for (const Node& node : read->nodes()) {
      EXPECT_GE(WorkspaceOf(*read, node, 64).v, 0);
      (void)CostOf(*read, node);
    }
  }
  EXPECT_GT(accepted, 100) << "the mutations hit only what is refused anyway";
}

}  // namespace
}  // namespace temper::print_test
