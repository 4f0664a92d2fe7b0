#include "compile/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compile/memory/recompute.h"
#include "compile/pipeline/balance.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::pipeline_test {
namespace {

constexpr int64_t T = 4, D = 8, V = 16;

// Blocks of x = x + w relu(rotate(x)), between a table and the loss over the same table.
Graph Net(int blocks) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, T);
  const ValueId position = build.TokenInput("position", DType::kI32, T);
  const ValueId target = build.TokenInput("target", DType::kI32, T);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  ValueId x = build.Embedding(table, token, 0, "x");
  const ValueId angles =
      build.Add(Op::kRopeTable, {position}, {{"inv_freq", std::vector<double>{1.0, 0.5}}}, "angles")[0];
  std::vector<ValueId> trained = {table};
  for (int b = 0; b < blocks; ++b) {
    const std::string prefix = "block" + std::to_string(b) + ".";
    build.EnterBlock(b, prefix);
    const ValueId w = build.Source(prefix + "w", {DType::kF32, {D, D}}, Role::kWeight);
    const ValueId h = build.Add(Op::kRelu, {build.Rope(x, angles, 4, false, "rotated")}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, w, kNoValue, "y"), "sum");
    trained.push_back(w);
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  for (const ValueId id : trained) graph.value(id).trainable = true;
  return graph;
}

// Blocks of equal cost with nothing around them.
BlockCosts Alike(size_t blocks) {
  return {.blocks = std::vector<double>(blocks, 1.0)};
}

struct Stages {
  std::map<std::string, std::vector<int>> holders;
  Graph whole;
  std::vector<PipelinedGraph> of;
};

Stages Cut(const Graph& net, PipelineCut cut, bool accumulate = false, Recompute recompute = Recompute::kNone) {
  cut.chunk_of_block = *ChunkOfBlocks(Alike(CostsOfBlocks(net).blocks.size()), cut.chunks(), {});
  Stages stages;
  const Graph split = SplitSharedWeights(net, cut, &stages.holders);
  stages.whole = RecomputeBlocks(Differentiate(Fuse(split), accumulate), {.mode = recompute});
  for (cut.stage = 0; cut.stage < cut.stages; ++cut.stage) {
    auto one = CutPipeline(stages.whole, cut);
    TEMPER_CHECK(one.ok()) << one.status().message();
    EXPECT_TRUE(Verify(one->graph).ok()) << "stage " << cut.stage << ": " << Verify(one->graph).message();
    stages.of.push_back(std::move(*one));
  }
  return stages;
}

std::multiset<std::string> Ops(const PipelinedGraph& stage, int chunk, PartKind kind) {
  std::multiset<std::string> ops;
  for (const PipelinePart& part : stage.parts) {
    for (size_t i = part.begin; i < part.end && part.chunk == chunk && part.kind == kind; ++i) {
      ops.insert(std::string(ToString(stage.graph.nodes()[i].op)));
    }
  }
  return ops;
}

bool IsMoved(Op op) {
  return IsTransfer(op) || op == Op::kRopeTable;
}

TEST(CutPipeline, EveryNodeIsOnOneStageAndTablesAreWhereTheyAreUsed) {
  for (const int stages : {2, 3}) {
    for (const int chunks : {1, 2}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
        const Stages cut = Cut(Net(6), {.stages = stages, .chunks_per_stage = chunks}, true, recompute);
        std::multiset<std::string> whole, parts;
        for (const Node& n : cut.whole.nodes()) {
          if (!IsMoved(n.op)) whole.insert(std::string(ToString(n.op)) + n.attributes.ToString());
        }
        for (const PipelinedGraph& stage : cut.of) {
          int tables = 0;
          for (const Node& n : stage.graph.nodes()) {
            tables += n.op == Op::kRopeTable;
            if (!IsMoved(n.op)) parts.insert(std::string(ToString(n.op)) + n.attributes.ToString());
          }
          EXPECT_EQ(tables, chunks) << "one per chunk";
        }
        EXPECT_EQ(parts, whole);
      }
    }
  }
}

TEST(CutPipeline, EachSendHasItsReceiveAndNothingElseIsMoved) {
  const Stages cut = Cut(Net(5), {.stages = 3});
  std::map<int64_t, std::pair<std::vector<std::string>, std::vector<std::string>>> ends;  // per tag
  for (size_t stage = 0; stage < cut.of.size(); ++stage) {
    for (const Node& n : cut.of[stage].graph.nodes()) {
      if (!IsTransfer(n.op)) continue;
      const bool sends = n.op == Op::kSend;
      const auto peer = static_cast<size_t>(n.attributes.Int("peer"));
      const ValueId id = sends ? n.inputs[0] : n.outputs[0];
      auto& [sent, received] = ends[n.attributes.Int("tag")];
      (sends ? sent : received)
          .push_back(std::to_string(sends ? stage : peer) + ">" + std::to_string(sends ? peer : stage) + " " +
                     cut.of[stage].graph.value(id).name + cut.of[stage].graph.value(id).type.ToString());
    }
  }
  EXPECT_EQ(ends.size(), 4u) << "the residual stream and its gradient, at two borders";
  for (const auto& [tag, both] : ends) {
    EXPECT_EQ(both.first.size(), 1u);
    EXPECT_EQ(both.first, both.second) << tag;
  }
}

TEST(CutPipeline, PartsReceiveFirstAndSendAsSoonAsPossible) {
  const Stages cut = Cut(Net(4), {.stages = 2});
  using Set = std::multiset<std::string>;
  EXPECT_EQ(Ops(cut.of[0], 0, PartKind::kReceiveForward), Set());
  EXPECT_EQ(Ops(cut.of[0], 0, PartKind::kReceiveBackward), Set({"recv"}));
  EXPECT_EQ(Ops(cut.of[1], 1, PartKind::kReceiveForward), Set({"recv"}));
  EXPECT_EQ(Ops(cut.of[1], 1, PartKind::kReceiveBackward), Set());
  EXPECT_EQ(Ops(cut.of[0], 0, PartKind::kForward).count("send"), 1u);
  EXPECT_EQ(Ops(cut.of[1], 1, PartKind::kBackward).count("send"), 1u);
  for (const PipelinedGraph& stage : cut.of) {
    for (size_t i = 0; i < stage.graph.nodes().size(); ++i) {
      const Node& n = stage.graph.nodes()[i];
      if (n.op != Op::kSend) continue;
      const auto& made = stage.graph.nodes()[i - 1].outputs;
      EXPECT_TRUE(std::count(made.begin(), made.end(), n.inputs[0])) << "sent when it is made";
    }
  }
}

TEST(CutPipeline, GradientsOfWeightsCanBeASeparatePart) {
  const Stages cut = Cut(Net(4), {.stages = 2, .split_weights = true});
  for (int stage = 0; stage < 2; ++stage) {
    const PipelinedGraph& graph = cut.of[static_cast<size_t>(stage)];
    EXPECT_EQ(Ops(graph, stage, PartKind::kBackward).count("linear_dw"), 0u);
    EXPECT_EQ(Ops(graph, stage, PartKind::kWeights).count("linear_dw"), 2u);
    EXPECT_EQ(Ops(graph, stage, PartKind::kWeights).count("linear_dx"), 0u);
    EXPECT_EQ(Ops(graph, stage, PartKind::kWeights).count("embedding_backward"), stage == 0 ? 1u : 0u);
  }
}

TEST(CutPipeline, EachStageDifferentiatesItsOwnCopyOfASharedWeight) {
  const Stages cut = Cut(Net(4), {.stages = 4}, true);
  EXPECT_EQ(cut.holders, (std::map<std::string, std::vector<int>>{{"table", {0, 3}}}));
  for (const size_t stage : {0u, 3u}) {
    const Graph& graph = cut.of[stage].graph;
    EXPECT_NE(graph.FindSource("table"), kNoValue);
    EXPECT_NE(graph.FindSource("grad:table"), kNoValue) << "each adds up its own";
  }
  EXPECT_EQ(cut.of[1].graph.FindSource("table"), kNoValue) << "a stage has only the weights that it uses";
  EXPECT_EQ(cut.of[1].graph.FindSource("token"), kNoValue);
}

TEST(CutPipeline, RefusesAValueThatSkipsAStage) {
  Graph graph = Net(3);
  // The last block's sum also takes the first one's.
  Node* last = nullptr;
  ValueId early = kNoValue;
  for (Node& n : graph.nodes()) {
    if (n.op != Op::kAdd) continue;
    if (n.block == 0) early = n.outputs[0];
    if (n.block == 2) last = &n;
  }
  last->inputs[0] = early;
  PipelineCut cut{.stages = 3, .chunk_of_block = {0, 1, 2}};
  const auto result = CutPipeline(graph, cut);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(
      result.status().message(),
      "a pipeline hands values on from one run of blocks to the next, but add of block 2 uses block0.sum of block 0");
}

}  // namespace
}  // namespace temper::pipeline_test
