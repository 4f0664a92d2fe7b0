#include "compile/memory/pack_operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile/memory/cast_weights.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::pack_operands_test {
namespace {

constexpr int64_t kRows = 96, kWidth = 80, kHidden = 112;

// gate, up and down of a trained block, and a trained head: one micro-batch, or several. The loss takes three chunks.
struct Trained {
  StepGraphs step;

  explicit Trained(int micro_batches, int64_t loss_chunk = 32) {
    Graph graph;
    GraphBuilder build(&graph);
    const auto weight = [&](const char* name, Shape shape) {
      const ValueId w = build.Source(name, {DType::kBF16, shape}, Role::kWeight);
      graph.value(w).trainable = true;
      return w;
    };
    const ValueId x = build.Source("x", {DType::kBF16, {kRows, kWidth}}, Role::kInput);
    const ValueId target = build.TokenInput("target", DType::kI32, kRows);
    const ValueId norm = weight("norm", {kWidth}), gate = weight("gate", {kHidden, kWidth}),
                  up = weight("up", {kHidden, kWidth}), down = weight("down", {kWidth, kHidden}),
                  head = weight("head", {128, kWidth});
    build.EnterBlock(0, "");
    const ValueId normed = build.RmsNorm(x, norm, 1e-5, "normed");
    const ValueId hidden = build.Glu(build.Linear(normed, gate, kNoValue, "gate.out"),
                                     build.Linear(normed, up, kNoValue, "up.out"), "hidden");
    const ValueId out = build.Linear(hidden, down, kNoValue, "down.out");
    build.EnterBlock(kBlockAfter, "");
    build.Add(Op::kLinearCrossEntropy, {out, head, target}, {}, "loss", Role::kOutput);
    const Graph fused = Fuse(std::move(graph));
    ProgramGraphs train{.name = "train", .trains = true}, eval{.name = "eval"};
    train.micro_batches.push_back({.graph = {.graph = Differentiate(fused, false)}});
    if (micro_batches > 1) {
      train.micro_batches.push_back({.graph = {.graph = Differentiate(fused, true)}, .count = micro_batches - 1});
    }
    eval.micro_batches.push_back({.graph = {.graph = fused}});
    step.programs = {std::move(train), std::move(eval)};
    for (ProgramGraphs& program : step.programs) {
      for (ProgramGraphs::MicroBatches& some : program.micro_batches) CutLoss(loss_chunk, &some.graph.graph);
    }
  }
  static void CutLoss(int64_t chunk, Graph* graph) {
    for (Node& node : graph->nodes()) {
      if (node.op == Op::kLinearCrossEntropy) node.attributes.Set("chunk", chunk);
    }
  }
  const Graph& micro_batch(size_t i = 0) const { return step.train().micro_batches[i].graph.graph; }
  const Graph& eval() const { return step.programs[1].front(); }
};

// The values that a graph packs, and what products read packed: "row_pairs:normed" and the like.
std::vector<std::string> PackedIn(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kCast && graph.value(node.outputs[0]).type.packed()) {
      names.push_back(graph.value(node.outputs[0]).name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}
int PackedReads(const Graph& graph) {
  int reads = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.inputs) reads += graph.value(id).type.packed();
  }
  return reads;
}
void ExpectGood(const Graph& graph) {
  const Status verified = Verify(graph);
  EXPECT_TRUE(verified.ok()) << verified.message();
}

TEST(PackOperands, PacksOnceWhatSeveralProductsOfAMicroBatchRead) {
  Trained trained(1);
  PackOperands(&trained.step, true);
  const Graph& graph = trained.micro_batch();
  ExpectGood(graph);
  // d_w of gate and up; three chunks of the loss, for logits and for d_x. What one product reads once stays as it is.
  EXPECT_EQ(PackedIn(graph), (std::vector<std::string>{"column_pairs:head", "row_pairs:head", "row_pairs:normed"}));
  EXPECT_EQ(PackedReads(graph), 4);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).type.packed()) {
      EXPECT_EQ(graph.value(id).role, Role::kActivation) << graph.value(id).name;
    }
  }
  EXPECT_EQ(PackedIn(trained.eval()), std::vector<std::string>{}) << "there no weight is trained";
}

TEST(PackOperands, LeavesALossOfOneChunkAlone) {
  Trained trained(1, kRows);
  PackOperands(&trained.step, true);
  EXPECT_EQ(PackedIn(trained.micro_batch()), std::vector<std::string>{"row_pairs:normed"});
}

// A weight comes from memory: it is worth packing from the third chunk on.
TEST(PackOperands, LeavesAHeadOfTwoChunksAlone) {
  for (const int64_t chunk : {int64_t{32}, int64_t{48}}) {
    Trained trained(1, chunk);
    PackOperands(&trained.step, true);
    std::vector<std::string> names = {"row_pairs:normed"};
    if (chunk == 32) names = {"column_pairs:head", "row_pairs:head", "row_pairs:normed"};
    EXPECT_EQ(PackedIn(trained.micro_batch()), names) << chunk;
  }
}

TEST(PackOperands, KeepsNoWeightsForTwoMicroBatches) {
  Trained trained(2, kRows);
  PackOperands(&trained.step, true);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(PackedIn(trained.micro_batch(i)), std::vector<std::string>{"row_pairs:normed"});
  }
}

TEST(PackOperands, LeavesFrozenWeightsAlone) {
  Trained trained(3);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    Graph& graph = trained.step.programs[0].micro_batches[i].graph.graph;
    for (ValueId id = 0; id < graph.num_values(); ++id) graph.value(id).trainable = false;
  }
  PackOperands(&trained.step, true);
  EXPECT_EQ(PackedIn(trained.micro_batch(0)), std::vector<std::string>{"row_pairs:normed"});
}

TEST(PackOperands, PacksTrainedWeightsOncePerStepOfSeveralMicroBatches) {
  Trained trained(3);
  PackOperands(&trained.step, true);
  const std::vector<std::string> weights = {"column_pairs:down", "column_pairs:gate", "column_pairs:head",
                                            "column_pairs:up",   "row_pairs:down",    "row_pairs:gate",
                                            "row_pairs:head",    "row_pairs:up"};
  std::vector<std::string> first = weights;
  first.insert(first.end() - 1, "row_pairs:normed");
  EXPECT_EQ(PackedIn(trained.micro_batch(0)), first);
  EXPECT_EQ(PackedIn(trained.micro_batch(1)), std::vector<std::string>{"row_pairs:normed"}) << "the first packed them";
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Graph& graph = trained.micro_batch(i);
    ExpectGood(graph);
    EXPECT_EQ(PackedReads(graph), 10);
    for (const std::string& name : weights) {
      bool found = false;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        found = found || (graph.value(id).name == name && graph.value(id).role == Role::kCache);
      }
      EXPECT_TRUE(found) << name;
    }
  }
}

TEST(PackOperands, KeepsNoWeightsPackedIfNotAskedTo) {
  Trained trained(3);
  PackOperands(&trained.step, false);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(PackedIn(trained.micro_batch(i)),
              (std::vector<std::string>{"column_pairs:head", "row_pairs:head", "row_pairs:normed"}));
  }
}

// Each use casts its master, so that no copy of a weight outlives it; a copy that the loss reads several times is
// packed.
TEST(PackOperands, PacksWhatMastersAreCastToIfItIsReadSeveralTimes) {
  Trained trained(3);
  CastWeights(&trained.step);
  PackOperands(&trained.step, true);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    ExpectGood(trained.micro_batch(i));
    EXPECT_EQ(PackedIn(trained.micro_batch(i)),
              (std::vector<std::string>{"column_pairs:head", "row_pairs:head", "row_pairs:normed"}));
  }
}

}  // namespace
}  // namespace temper::pack_operands_test
