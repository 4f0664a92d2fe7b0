#include "compile/memory/recompute.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "tensor/mesh.h"

namespace temper::recompute_test {
namespace {

// Two blocks of x + w2 relu(dropout(w1 norm(x))), and a loss.
Graph TwoBlocks() {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = 4, D = 8;
  const auto source = [&](const std::string& name, Shape shape, Role role, DType dtype = DType::kF32) {
    const ValueId id = build.Source(name, {dtype, shape}, role);
    graph.value(id).trainable = role == Role::kWeight;
    return id;
  };
  const ValueId rng = source("rng", {kNumRngWords}, Role::kInput, DType::kI64);
  const ValueId target = source("target", {T}, Role::kInput, DType::kI32);
  const ValueId token = source("token", {T}, Role::kInput, DType::kI32);
  const ValueId table = source("table.weight", {16, D}, Role::kWeight);
  ValueId x = build.Embedding(table, token, 0, "x");
  for (int block = 0; block < 2; ++block) {
    const std::string p = "layers." + std::to_string(block) + ".";
    build.EnterBlock(block, p);
    ValueId h = build.RmsNorm(x, source(p + "norm.weight", {D}, Role::kWeight), 1e-5, "norm");
    h = build.Linear(h, source(p + "w1.weight", {D, D}, Role::kWeight), kNoValue, "w1");
    h = build.Add(Op::kDropout, {h, rng}, {{"p", 0.5}}, "dropout")[0];
    h = build.Add(Op::kRelu, {h}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, source(p + "w2.weight", {D, D}, Role::kWeight), kNoValue, "w2"), "residual");
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

TEST(Recompute, ClonesAreTheSameNodesInTheBackward) {
  const Graph plain = Differentiate(Fuse(TwoBlocks()), false);
  const Graph graph = RecomputeBlocks(plain, {.mode = Recompute::kBlock});
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  EXPECT_EQ(PrintGraph(RecomputeBlocks(plain, {.mode = Recompute::kNone})), PrintGraph(plain));

  std::map<std::string, const Node*> forward;
  for (const Node& n : graph.nodes()) {
    if (n.phase == Phase::kForward) forward[graph.value(n.outputs[0]).name] = &n;
  }
  int clones = 0;
  std::set<std::pair<int, std::string>> seen;
  for (const Node& n : graph.nodes()) {
    const auto original = forward.find(graph.value(n.outputs[0]).name);
    if (n.phase != Phase::kBackward || original == forward.end()) continue;
    ++clones;
    EXPECT_TRUE(seen.insert({n.block, original->first}).second) << original->first << " is recomputed twice";
    EXPECT_EQ(n.op, original->second->op);
    EXPECT_EQ(n.attributes, original->second->attributes);
    EXPECT_EQ(n.rng_name, original->second->rng_name);
    EXPECT_EQ(n.block, original->second->block);
    EXPECT_EQ(n.outputs.size(), original->second->outputs.size());
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      EXPECT_EQ(graph.value(n.inputs[i]).name, graph.value(original->second->inputs[i]).name);
    }
  }
  // Per block: norm, w1, dropout, relu. The product w2 with its residual is not needed by any gradient.
  EXPECT_EQ(clones, 2 * 4);
}

TEST(Recompute, TheBackwardOfABlockKeepsOnlyTheBlocksInputs) {
  const Graph graph = RecomputeBlocks(Differentiate(Fuse(TwoBlocks()), true), {.mode = Recompute::kBlock});
  std::map<ValueId, int> made_in;  // by forward nodes
  for (const Node& n : graph.nodes()) {
    for (ValueId id : n.outputs) {
      if (n.phase == Phase::kForward) made_in[id] = n.block;
    }
  }
  for (const Node& n : graph.nodes()) {
    if (n.phase != Phase::kBackward || n.block < 0) continue;
    for (ValueId id : n.inputs) {
      const auto maker = made_in.find(id);
      if (maker != made_in.end()) {
        EXPECT_NE(maker->second, n.block) << graph.value(id).name;
      }
    }
  }
}

TEST(Recompute, IsLimitedToTheFirstBlocks) {
  const Graph plain = Differentiate(Fuse(TwoBlocks()), false);
  const Graph graph = RecomputeBlocks(plain, {.mode = Recompute::kBlock, .blocks = 1});
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  std::map<std::pair<int, std::string>, int> made;
  for (const Node& n : graph.nodes()) ++made[{n.block, graph.value(n.outputs[0]).name}];
  EXPECT_EQ((made[{0, "layers.0.w1"}]), 2);
  EXPECT_EQ((made[{1, "layers.1.w1"}]), 1);
}

// TwoBlocks with every matrix of a block gathered from the halves of two ranks.
Graph TwoGatheredBlocks() {
  const Graph whole = TwoBlocks();
  Graph graph;
  for (ValueId id = 0; id < whole.num_values(); ++id) graph.AddValue(whole.value(id));
  for (Node node : whole.nodes()) {
    for (ValueId& id : node.inputs) {
      if (node.op != Op::kLinear || graph.value(id).role != Role::kWeight) continue;
      const TensorType type = graph.value(id).type;
      const ValueId gathered = graph.AddValue({.name = "gathered." + graph.value(id).name, .type = type});
      graph.value(id).type.shape.set_dim(0, type.shape[0] / 2);
      graph.AddNode({.op = Op::kAllGather,
                     .inputs = {id},
                     .outputs = {gathered},
                     .attributes = {{"axes", AxisSet(Axis::kFsdp).ToString()},
                                    {"ranks", int64_t{2}},
                                    {"dim", int64_t{0}},
                                    {"sizes", std::vector<double>{static_cast<double>(type.shape[0])}}},
                     .block = node.block});
      id = gathered;
    }
    graph.AddNode(std::move(node));
  }
  graph.roots() = whole.roots();
  return graph;
}

// The blocks of all gathers in the backward.
std::multiset<int> GatheredAgain(const RecomputeSpec& spec) {
  const Graph graph = RecomputeBlocks(Differentiate(Fuse(TwoGatheredBlocks()), false), spec);
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  std::multiset<int> blocks;
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kAllGather && n.phase == Phase::kBackward) blocks.insert(n.block);
  }
  return blocks;
}

TEST(Recompute, GatheringAgainIsIndependentOfTheMode) {
  using Blocks = std::multiset<int>;
  for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kBlock}) {
    SCOPED_TRACE(ToString(mode));
    EXPECT_EQ(GatheredAgain({.mode = mode}), Blocks());
    EXPECT_EQ(GatheredAgain({.mode = mode, .gathered_blocks = 0}), (Blocks{0, 0, 1, 1}));
    EXPECT_EQ(GatheredAgain({.mode = mode, .gathered_blocks = 1}), (Blocks{0, 0}));
    EXPECT_EQ(GatheredAgain({.mode = mode, .gathered_blocks = 2}), Blocks());
    EXPECT_EQ(GatheredAgain({.mode = mode, .gathered_blocks = 3}), Blocks());
  }
}

TEST(Recompute, ClonesComeInTheOrderOfTheForward) {
  const Graph graph = RecomputeBlocks(Differentiate(Fuse(TwoBlocks()), false), {.mode = Recompute::kBlock});
  std::vector<std::string> forward, clones;
  std::set<std::string> names;
  for (const Node& n : graph.nodes()) {
    const std::string& name = graph.value(n.outputs[0]).name;
    if (n.block != 1) continue;
    if (n.phase == Phase::kForward) {
      forward.push_back(name);
      names.insert(name);
    } else if (names.contains(name)) {
      clones.push_back(name);
    }
  }
  forward.pop_back();  // the residual sum
  EXPECT_EQ(clones, forward);
}

}  // namespace
}  // namespace temper::recompute_test
