#include "compile/step/differentiate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "program/buffer_names.h"

namespace temper::differentiate_test {
namespace {

constexpr int64_t T = 4, D = 8, V = 16;

// x = table[token]; x = x + w2 relu(w1 x); loss over the tied table. The test chooses which weights train.
struct Net {
  Graph graph;
  GraphBuilder build{&graph};
  ValueId token, target, table, w1, w2;
  Net() {
    token = build.TokenInput("token", DType::kI32, T);
    target = build.TokenInput("target", DType::kI32, T);
    table = build.Source("table", {DType::kBF16, {V, D}}, Role::kWeight);
    w1 = build.Source("w1", {DType::kBF16, {D, D}}, Role::kWeight);
    w2 = build.Source("w2", {DType::kBF16, {D, D}}, Role::kWeight);
    ValueId x = build.Embedding(table, token, 0, "x");
    build.EnterBlock(0, "");
    ValueId h = build.Linear(x, w1, kNoValue, "h");
    h = build.Add(Op::kRelu, {h}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, w2, kNoValue, "y"), "sum");
    build.EnterBlock(kBlockAfter, "");
    build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  }
  Net& Train(std::initializer_list<ValueId> ids) {
    for (ValueId id : ids) graph.value(id).trainable = true;
    return *this;
  }
};

std::multiset<std::string> BackwardOps(const Graph& graph) {
  std::multiset<std::string> ops;
  for (const Node& n : graph.nodes()) {
    if (n.phase == Phase::kBackward) ops.insert(std::string(ToString(n.op)));
  }
  return ops;
}

std::set<std::string> GradientBuffers(const Graph& graph) {
  std::set<std::string> names;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).role == Role::kGradient) names.insert(graph.value(graph.Root(id)).name);
  }
  return names;
}

TEST(Differentiate, FrozenWeightsGetNoGradientNodes) {
  const Graph graph = Differentiate(Net().Train({2, 3, 4}).graph, false);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  EXPECT_EQ(GradientBuffers(graph), (std::set<std::string>{"grad:table", "grad:w1", "grad:w2"}));
  EXPECT_EQ(BackwardOps(graph).count("linear_dw"), 2u);

  // Only w2: its own gradient from the loss's, none before it.
  Net late;
  const Graph w2 = Differentiate(late.Train({late.w2}).graph, false);
  ASSERT_TRUE(Verify(w2).ok()) << Verify(w2).message();
  EXPECT_EQ(BackwardOps(w2), (std::multiset<std::string>{"linear_dw"}));
  EXPECT_EQ(GradientBuffers(w2), (std::set<std::string>{"grad:w2"}));

  // Only w1: through w2 and relu, but no gradient of w2, of the table, or of the embedding's output.
  Net early;
  const Graph w1 = Differentiate(early.Train({early.w1}).graph, false);
  EXPECT_EQ(BackwardOps(w1), (std::multiset<std::string>{"linear_dw", "linear_dx", "relu_backward"}));
  EXPECT_EQ(GradientBuffers(w1), (std::set<std::string>{"grad:w1"}));
  for (const Node& n : w1.nodes()) {
    if (n.op == Op::kLinearCrossEntropy) {
      EXPECT_FALSE(n.attributes.Flag("grad_w")) << "the head is frozen";
      EXPECT_TRUE(n.attributes.Flag("grad_x"));
    }
  }
}

TEST(Differentiate, OnlyTheHeadNeedsNoBackwardNodes) {
  Net net;
  const ValueId head =
      net.graph.AddValue({.name = "head", .type = {DType::kBF16, {V, D}}, .role = Role::kWeight, .trainable = true});
  net.graph.nodes().back().inputs[1] = head;
  const Graph graph = Differentiate(net.graph, false);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  EXPECT_TRUE(BackwardOps(graph).empty());
  EXPECT_EQ(GradientBuffers(graph), (std::set<std::string>{"grad:head"}));
  EXPECT_FALSE(graph.nodes().back().attributes.Flag("grad_x"));
}

TEST(Differentiate, ChainsOfATiedWeightShareOneBufferInF32) {
  for (const bool accumulate : {false, true}) {
    Net net;
    const Graph graph = Differentiate(net.Train({net.table}).graph, accumulate);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    std::set<ValueId> roots;
    int links = 0;
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (graph.value(id).role != Role::kGradient) continue;
      EXPECT_EQ(graph.value(id).type, (TensorType{DType::kF32, {V, D}}));
      roots.insert(graph.Root(id));
      ++links;
    }
    EXPECT_EQ(roots.size(), 1u);
    // The head's term, the embedding's, and the source with the sum of earlier micro-batches.
    EXPECT_EQ(links, accumulate ? 3 : 2);
    const ValueId root = *roots.begin();
    bool made = false;
    for (const Node& n : graph.nodes()) made |= std::count(n.outputs.begin(), n.outputs.end(), root) > 0;
    EXPECT_EQ(made, !accumulate) << "only a later micro-batch reads an existing gradient";
  }
}

TEST(Differentiate, LaterMicroBatchesAccumulateEveryGradient) {
  Net net;
  const Graph graph = Differentiate(net.Train({net.table, net.w1, net.w2}).graph, true);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kLinearDw || n.op == Op::kEmbeddingBackward) {
      EXPECT_TRUE(n.attributes.Flag("acc")) << ToString(n.op);
    }
    if (n.op == Op::kLinearCrossEntropy) {
      EXPECT_TRUE(n.attributes.Flag("acc_w"));
    }
  }
  for (const char* weight : {"table", "w1", "w2"}) {
    const ValueId source = graph.FindSource(GradientName(weight));
    ASSERT_NE(source, kNoValue);
    EXPECT_EQ(graph.value(source).role, Role::kGradient);
  }
}

TEST(Differentiate, SumsTheGradientsOfAValueUsedTwice) {
  Net net;
  const Graph graph = Differentiate(net.Train({net.table}).graph, false);
  // x feeds the branch and the residual: the branch's linear_dx takes the residual's gradient as its accumulator.
  bool found = false;
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kLinearDx && n.attributes.Flag("acc")) found = true;
  }
  EXPECT_TRUE(found);
  // An op that reads one value twice.
  Graph twice;
  GraphBuilder build(&twice);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  twice.value(table).trainable = true;
  const ValueId token = build.TokenInput("token", DType::kI32, T);
  const ValueId x = build.Embedding(table, token, 0, "x");
  const ValueId squared = build.Glu(x, x, "squared");
  const ValueId sum = build.Sum(squared, squared, "sum");
  build.Add(Op::kLinearCrossEntropy, {sum, table, build.TokenInput("target", DType::kI32, T)}, {}, "loss",
            Role::kOutput);
  const Graph back = Differentiate(twice, false);
  EXPECT_TRUE(Verify(back).ok()) << Verify(back).message();
  EXPECT_EQ(BackwardOps(back), (std::multiset<std::string>{"add", "add", "embedding_backward", "glu_backward"}));
}

TEST(Differentiate, RandomOpsKeepTheirDrawsInTheBackward) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  graph.value(table).trainable = true;
  const ValueId x = build.Embedding(table, build.TokenInput("token", DType::kI32, T), 0, "x");
  const ValueId rng = build.Source("rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
  build.EnterBlock(0, "layer.");
  const ValueId y = build.Add(Op::kDropout, {x, rng}, {{"p", 0.25}}, "drop")[0];
  build.Add(Op::kLinearCrossEntropy, {y, table, build.TokenInput("target", DType::kI32, T)}, {}, "loss", Role::kOutput);
  const Graph back = Differentiate(graph, false);
  int dropouts = 0;
  for (const Node& n : back.nodes()) {
    if (n.op != Op::kDropout) continue;
    ++dropouts;
    EXPECT_EQ(n.rng_name, "layer.drop");
    EXPECT_EQ(n.attributes.Double("p"), 0.25);
    EXPECT_EQ(n.inputs[1], rng);
  }
  EXPECT_EQ(dropouts, 2);
}

TEST(DifferentiateDeathTest, NeedsALoss) {
  Net none;
  none.graph.roots().clear();
  EXPECT_DEATH((void)Differentiate(none.Train({none.w1}).graph, false), "no loss to differentiate");
}

// Differentiate starts at the roots and returns a graph without roots.
TEST(Differentiate, ASecondLossOnTheSameWeightAddsItsGradient) {
  for (const bool accumulate : {false, true}) {
    Net net;
    const ValueId x = net.graph.nodes().back().inputs[0];
    net.build.Add(Op::kLinearCrossEntropy, {x, net.table, net.target}, {}, "loss2", Role::kOutput);
    ASSERT_EQ(net.graph.roots().size(), 2u);
    ASSERT_TRUE(Verify(net.graph).ok()) << Verify(net.graph).message();
    const Graph graph = Differentiate(net.Train({net.table, net.w1}).graph, accumulate);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message() << PrintGraph(graph);
    EXPECT_TRUE(graph.roots().empty());
    int with_acc = 0;
    for (const Node& n : graph.nodes()) with_acc += n.op == Op::kLinearCrossEntropy && n.attributes.Flag("acc_w");
    EXPECT_EQ(with_acc, accumulate ? 1 : 0) << "results of the later loss are no operands of the earlier one";
    EXPECT_EQ(BackwardOps(graph).count("add"), 2u) << "of x and of the table";
  }
}

TEST(Differentiate, ARootWithASeedStartsThere) {
  Net net;
  net.graph.roots().clear();
  const ValueId x = net.graph.nodes().back().inputs[0];
  const ValueId seed = net.build.Source("seed", net.graph.value(x).type, Role::kInput);
  net.graph.roots() = {{x, seed}};
  ASSERT_TRUE(Verify(net.graph).ok()) << Verify(net.graph).message();
  const auto read = ReadGraph(PrintGraph(net.graph));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->roots(), net.graph.roots());
  const Graph graph = Differentiate(net.Train({net.w2}).graph, false);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  EXPECT_EQ(BackwardOps(graph), (std::multiset<std::string>{"linear_dw"}));
  EXPECT_EQ(graph.nodes().back().inputs[0], seed);
  for (const Node& n : graph.nodes()) {
    EXPECT_FALSE(n.attributes.Flag("grad_x")) << "a loss that is not a root has no gradient";
  }
}

// The norms of DoRA: only the product that is scaled gives a gradient to the adapter.
TEST(Differentiate, WhatADetachedOpMakesIsAConstant) {
  Net net;
  const TensorType vector{DType::kF32, {V}};
  const ValueId a = net.build.Source("a", {DType::kBF16, {2, D}}, Role::kAdapter);
  const ValueId b = net.build.Source("b", {DType::kBF16, {V, 2}}, Role::kAdapter);
  const ValueId m = net.build.Source("m", vector, Role::kAdapter);
  Graph& graph = net.graph;
  const ValueId x = graph.nodes().back().inputs[0];
  graph.nodes().pop_back();
  graph.roots().clear();
  const ValueId h = net.build.Linear(x, a, kNoValue, "h2");
  const ValueId y = net.build.Linear(h, b, kNoValue, "y2");
  const ValueId q = net.build.Add(Op::kRowSquares, {a, net.table, b}, {{"scale", 1.0}}, "q")[0];
  const ValueId scaled = net.build.Add(Op::kScaleColumns, {y, m, q}, {}, "scaled")[0];
  const ValueId head = net.build.Source("head", {DType::kBF16, {V, V}}, Role::kWeight);
  net.build.Add(Op::kLinearCrossEntropy, {scaled, head, net.target}, {}, "loss", Role::kOutput);
  const Graph trained = Differentiate(net.Train({a, b, m}).graph, false);
  ASSERT_TRUE(Verify(trained).ok()) << Verify(trained).message();
  EXPECT_EQ(BackwardOps(trained),
            (std::multiset<std::string>{"linear_dw", "linear_dw", "linear_dx", "scale_columns_backward"}));
}

TEST(Differentiate, InvalidRootsAreRefused) {
  const auto refused = [](const std::function<void(Net&, Graph&)>& spoil) {
    Net net;
    spoil(net, net.graph);
    EXPECT_FALSE(Verify(net.graph).ok());
  };
  refused([](Net&, Graph& g) { g.roots()[0].loss = g.num_values(); });
  refused([](Net& net, Graph& g) { g.roots()[0].loss = net.token; });
  refused([](Net& net, Graph& g) { g.roots()[0].seed = net.table; });
  refused([](Net&, Graph& g) { g.roots().push_back({g.nodes().back().inputs[0]}); });
  refused([](Net& net, Graph& g) { g.roots().push_back({g.nodes().back().inputs[0], net.table}); });
}

}  // namespace
}  // namespace temper::differentiate_test
