#include "compile/memory/held_activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "compile/memory/recompute.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::held_activations_test {
namespace {

constexpr int kBlocks = 3;

// Blocks of x + w2 relu(w1 norm(x)), and a loss.
Graph Step(int recomputed) {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = 64, D = 32;
  const auto weight = [&](const std::string& name, Shape shape) {
    const ValueId id = build.Source(name, {DType::kF32, shape}, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  };
  const ValueId table = weight("table.weight", {48, D});
  const ValueId target = build.Source("target", {DType::kI32, {T}}, Role::kInput);
  ValueId x = build.Embedding(table, build.Source("token", {DType::kI32, {T}}, Role::kInput), 0, "x");
  for (int block = 0; block < kBlocks; ++block) {
    const std::string p = "layers." + std::to_string(block) + ".";
    build.EnterBlock(block, p);
    ValueId h = build.RmsNorm(x, weight(p + "norm.weight", {D}), 1e-5, "norm");
    h = build.Add(Op::kRelu, {build.Linear(h, weight(p + "w1.weight", {2 * D, D}), kNoValue, "w1")}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, weight(p + "w2.weight", {D, 2 * D}), kNoValue, "w2"), "residual");
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  return RecomputeBlocks(Differentiate(Fuse(std::move(graph)), false),
                         {.mode = Recompute::kBlock, .blocks = recomputed});
}

// Bytes of activations that exist before the first node of the backward and are read from then on.
Bytes AliveBetween(const Graph& graph) {
  std::set<ValueId> made;
  Bytes alive{};
  bool backward = false;
  for (const Node& node : graph.nodes()) {
    backward |= node.phase == Phase::kBackward;
    for (const ValueId id : node.inputs) {
      if (backward && made.erase(id) > 0) alive += graph.value(id).type.bytes();
    }
    if (!backward) made.insert(node.outputs.begin(), node.outputs.end());
  }
  return alive;
}

TEST(HeldActivations, AreNoMoreThanWhatAStepKeepsForItsBackward) {
  StepGraphs step;
  ProgramGraphs& train = step.programs.emplace_back(ProgramGraphs{.name = "train", .trains = true});
  train.micro_batches.push_back({.graph = {Step(0), {}}});
  const HeldActivations held(step);
  for (int blocks = 0; blocks <= kBlocks; ++blocks) {
    const Bytes alive = AliveBetween(Step(blocks));
    EXPECT_LE(held.Least(blocks), alive) << blocks;
    if (blocks == kBlocks) break;
    EXPECT_GT(held.Least(blocks).v, alive.v / 3) << blocks;
    EXPECT_GT(held.Least(blocks), held.Least(blocks + 1));
  }
  EXPECT_EQ(held.Least(kBlocks), Bytes{});
  EXPECT_EQ(held.Least(kAllBlocks), Bytes{});
}

TEST(HeldActivations, OfAStageAreUnknown) {
  StepGraphs step;
  ProgramGraphs& train = step.programs.emplace_back(ProgramGraphs{.name = "train", .trains = true});
  train.micro_batches.push_back({.graph = {Step(0), {}}});
  train.pipeline.emplace();
  EXPECT_EQ(HeldActivations(step).Least(0), Bytes{});
}

}  // namespace
}  // namespace temper::held_activations_test
