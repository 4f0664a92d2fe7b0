#include "compile/step/join_adapters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::join_adapters_test {
namespace {

// Adapters on the products of gate and up, or of gate alone, behind a norm that is trained, so that d_x is needed.
struct Adapted {
  Graph graph;
  GraphBuilder build{&graph};

  explicit Adapted(double scale, bool dropout = false, bool both = true) {
    const ValueId x = build.Source("x", {DType::kF32, {4, 8}}, Role::kInput);
    const ValueId norm = build.Source("norm", {DType::kF32, {8}}, Role::kWeight);
    const ValueId head = build.Source("head", {DType::kF32, {10, 6}}, Role::kWeight);
    const ValueId target = build.TokenInput("target", DType::kI32, 4);
    graph.value(norm).trainable = true;
    build.EnterBlock(0, "");
    const ValueId normed = build.RmsNorm(x, norm, 1e-5, "normed");
    std::vector<ValueId> ys;
    for (const char* name : {"gate", "up"}) {
      const std::string path(name);
      const ValueId w = build.Source(path + ".weight", {DType::kF32, {6, 8}}, Role::kWeight);
      if (path == "up" && !both) {
        ys.push_back(build.Linear(normed, w, kNoValue, path));
        continue;
      }
      const ValueId a = build.Source(path + ".A", {DType::kF32, {2, 8}}, Role::kAdapter);
      const ValueId b = build.Source(path + ".B", {DType::kF32, {6, 2}}, Role::kAdapter);
      graph.value(a).trainable = graph.value(b).trainable = true;
      const ValueId base = build.Linear(normed, w, kNoValue, path + ".base");
      ValueId dropped = normed;
      if (dropout) {
        const ValueId rng = build.Source(path + ".rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
        dropped = build.Add(Op::kDropout, {normed, rng}, {{"p", 0.5}}, path + ".dropout")[0];
      }
      const ValueId h = build.Linear(dropped, a, kNoValue, path + ".h");
      ys.push_back(
          build.Add(Op::kLinear, {h, b, base}, {{"acc", int64_t{1}}, {"bias", int64_t{0}}, {"scale", scale}}, path)[0]);
    }
    const ValueId hidden = build.Glu(ys[0], ys[1], "hidden");
    build.EnterBlock(kBlockAfter, "");
    build.Add(Op::kLinearCrossEntropy, {hidden, head, target}, {}, "loss", Role::kOutput);
  }
};

int Count(const Graph& graph, Op op, bool of_two_pairs) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) {
    return n.op == op && n.attributes.Flag("pair2") == of_two_pairs;
  }));
}

Graph JoinedStep(Adapted adapted) {
  Graph step = JoinAdapters(Differentiate(Fuse(std::move(adapted.graph)), false));
  EXPECT_TRUE(Verify(step).ok()) << Verify(step).message();
  return step;
}

TEST(JoinAdapters, MakesThemPartOfTheirProductsForwardAndBackward) {
  const Graph step = JoinedStep(Adapted(1));
  EXPECT_EQ(Count(step, Op::kLinear, true), 2);
  EXPECT_EQ(Count(step, Op::kLinear, false), 0);
  EXPECT_EQ(Count(step, Op::kLinears, false), 1) << "h of both";
  EXPECT_EQ(Count(step, Op::kLinearDx, true), 2) << "d_x of the base, and of the adapters";
  EXPECT_EQ(Count(step, Op::kLinearDx, false), 2) << "d_h";
  EXPECT_EQ(Count(step, Op::kLinearsDx, false), 0);
}

TEST(JoinAdapters, GivesTheirScaleToWhatTheyAreMadeOf) {
  const Graph step = JoinedStep(Adapted(0.75));
  EXPECT_EQ(Count(step, Op::kLinear, true), 2);
  for (const Node& node : step.nodes()) {
    const double scale = node.attributes.DoubleOr("scale", 1);
    const bool makes_d_h = node.op == Op::kLinearDx && !node.attributes.Flag("pair2");
    EXPECT_EQ(scale, node.op == Op::kLinears || makes_d_h ? 0.75 : 1.0) << ToString(node.op);
  }
}

// As of models that scale what their blocks add. The gradients below are those of y = 0.5 x W^T + 0.5 * 1.5 h B^T.
TEST(JoinAdapters, KeepsTheScaleOfTheirProducts) {
  Adapted adapted(0.75, /*dropout=*/false, /*both=*/false);
  for (Node& node : adapted.graph.nodes()) {
    if (node.op == Op::kLinear && adapted.graph.value(node.outputs[0]).name == "gate.base") {
      node.attributes.Set("scale", 0.5);
    }
  }
  const Graph step = JoinedStep(std::move(adapted));
  EXPECT_EQ(Count(step, Op::kLinear, true), 1);
  EXPECT_EQ(Count(step, Op::kLinearDx, true), 1);
  int of_adapters = 0;
  for (const Node& node : step.nodes()) {
    if (node.block != 0 || node.op == Op::kRmsNorm) continue;
    const double scale = node.attributes.DoubleOr("scale", 1);
    const bool is_product = node.op == Op::kLinear || node.op == Op::kLinearDx;
    const std::string& name = step.value(node.outputs[0]).name;
    if (is_product && node.attributes.Flag("pair2")) {
      EXPECT_EQ(scale, 0.5) << name;
    } else if (is_product && step.value(node.inputs[1]).role == Role::kAdapter) {
      EXPECT_EQ(scale, 1.5) << name << ": h, or d_h";
    }
    // d_B = 0.5 d_y^T (1.5 h), d_A = 0.5 (1.5 d_y B)^T x.
    if (node.op != Op::kLinearDw) continue;
    EXPECT_EQ(scale, 0.5) << name;
    ++of_adapters;
  }
  EXPECT_EQ(of_adapters, 2);
}

TEST(JoinAdapters, LeavesScalesThatDiffer) {
  Adapted adapted(2);
  for (Node& node : adapted.graph.nodes()) {
    if (node.op == Op::kLinear && node.attributes.Flag("acc")) {
      node.attributes.Set("scale", 3.0);
      break;
    }
  }
  const Graph step = JoinedStep(std::move(adapted));
  EXPECT_EQ(Count(step, Op::kLinear, true), 0) << "h of both is one product, which has one scale";
  EXPECT_EQ(Count(step, Op::kLinearDx, true), 2);
}

// d_x of an adapter goes through its dropout first.
TEST(JoinAdapters, JoinsThoseWithDropoutForwardOnly) {
  const Graph step = JoinedStep(Adapted(1, /*dropout=*/true));
  EXPECT_EQ(Count(step, Op::kLinear, true), 2);
  EXPECT_EQ(Count(step, Op::kLinearDx, true), 0);
}

// As with tp, whose ranks add up their terms of h.
TEST(JoinAdapters, FollowsHThroughCollectives) {
  Adapted adapted(0.75);
  Graph& graph = adapted.graph;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes()) {
    const bool branch = node.op == Op::kLinear && node.attributes.Flag("acc");
    if (branch) {
      const ValueId h = node.inputs[0];
      const ValueId sum = graph.AddValue({.name = graph.value(h).name + ".sum", .type = graph.value(h).type});
      nodes.push_back({.op = Op::kAllReduce,
                       .inputs = {h},
                       .outputs = {sum},
                       .attributes = {{"axes", std::string("tp")}, {"ranks", int64_t{2}}},
                       .block = node.block});
      node.inputs[0] = sum;
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes() = std::move(nodes);
  graph = JoinAdapters(Fuse(std::move(graph)));
  EXPECT_EQ(Count(graph, Op::kLinear, true), 2);
  for (const Node& node : graph.nodes()) {
    EXPECT_EQ(node.attributes.DoubleOr("scale", 1), node.op == Op::kLinears ? 0.75 : 1.0) << ToString(node.op);
  }
}

// A product that adds to another one is no adapter: as of blocks whose attention and MLP are parallel.
TEST(JoinAdapters, LeavesProductsOfWeights) {
  Adapted adapted(1);
  for (ValueId id = 0; id < adapted.graph.num_values(); ++id) {
    Value& value = adapted.graph.value(id);
    if (value.role == Role::kAdapter) value.role = Role::kWeight;
  }
  const Graph step = Differentiate(Fuse(std::move(adapted.graph)), false);
  EXPECT_EQ(PrintGraph(JoinAdapters(step)), PrintGraph(step));
}

}  // namespace
}  // namespace temper::join_adapters_test
