#include "compile/layout/layout.h"

#include <gtest/gtest.h>

#include <map>

#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "program/program.h"

namespace temper::layout_test {
namespace {

constexpr int64_t T = 64, D = 32, V = 48;

// Four blocks of x = x + w relu(x), all trained; the second of two stages.
PipelinedGraph LastStage(bool split_weights) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, T);
  const ValueId target = build.TokenInput("target", DType::kI32, T);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  const ValueId head = build.Source("head", {DType::kF32, {V, D}}, Role::kWeight);
  ValueId x = build.Embedding(table, token, 0, "x");
  for (int b = 0; b < 4; ++b) {
    build.EnterBlock(b, "block" + std::to_string(b) + ".");
    const ValueId w = build.Source("w" + std::to_string(b), {DType::kF32, {D, D}}, Role::kWeight);
    graph.value(w).trainable = true;
    const ValueId h = build.Add(Op::kRelu, {x}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, w, kNoValue, "y"), "sum");
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, head, target}, {}, "loss", Role::kOutput);
  PipelineCut cut{.stage = 1, .stages = 2, .chunk_of_block = {0, 0, 1, 1}, .split_weights = split_weights};
  auto stage = CutPipeline(Differentiate(Fuse(graph), false), cut);
  TEMPER_CHECK(stage.ok()) << stage.status().message();
  stage->graph = UpdateInPlace(stage->graph);
  return std::move(*stage);
}

struct Life {
  size_t first_part = 0, last_part = 0;
  int begin = -1, end = -1;
};

std::map<ValueId, Life> LivesOf(const PipelinedGraph& stage) {
  std::map<ValueId, Life> lives;
  for (size_t p = 0; p < stage.parts.size(); ++p) {
    for (size_t i = stage.parts[p].begin; i < stage.parts[p].end; ++i) {
      const Node& node = stage.graph.nodes()[i];
      for (const auto* list : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *list) {
          if (IsPersistent(stage.graph, id)) continue;
          Life& life = lives[stage.graph.Root(id)];
          if (life.begin < 0) life = {p, p, static_cast<int>(i), static_cast<int>(i)};
          life.last_part = p;
          life.end = static_cast<int>(i);
        }
      }
    }
  }
  return lives;
}

TEST(LayOut, OnlyValuesThatOutliveTheirPartAreInSlots) {
  for (const bool split : {false, true}) {
    const PipelinedGraph stage = LastStage(split);
    const Layout layout = LayOut(stage.graph, stage.parts, 1);
    int kept = 0, received = 0, temporaries = 0;
    for (const auto& [id, life] : LivesOf(stage)) {
      const Home& home = layout.home[static_cast<size_t>(id)];
      if (life.first_part != life.last_part) {
        EXPECT_EQ(home.chunk, 1) << stage.graph.value(id).name;
        const bool is_received = stage.parts[life.first_part].kind == PartKind::kReceiveForward;
        EXPECT_EQ(home.kind, is_received ? SlotKind::kReceivedForward : SlotKind::kKept);
        ++(is_received ? received : kept);
      } else if (home.chunk < 0) {
        ++temporaries;
      }
    }
    EXPECT_EQ(received, 1) << "the residual stream";
    EXPECT_GE(kept, 3) << "values of each block that the backward needs, and the loss's gradient";
    EXPECT_GT(temporaries, 0);
  }
}

TEST(LayOut, SentValuesStayUntilTheirMicroBatchIsDone) {
  const PipelinedGraph stage = LastStage(true);
  const Layout layout = LayOut(stage.graph, stage.parts, 1);
  for (const Node& node : stage.graph.nodes()) {
    if (node.op != Op::kSend) continue;
    const Home& home = layout.home[static_cast<size_t>(stage.graph.Root(node.inputs[0]))];
    EXPECT_EQ(home.chunk, 1) << "other parts run while it is in transit";
  }
}

TEST(LayOut, ValuesThatAreAliveTogetherShareNoByte) {
  for (const bool split : {false, true}) {
    const PipelinedGraph stage = LastStage(split);
    const Layout layout = LayOut(stage.graph, stage.parts, 1);
    const auto lives = LivesOf(stage);
    for (const auto& [a, life_a] : lives) {
      for (const auto& [b, life_b] : lives) {
        if (a >= b || life_a.end < life_b.begin || life_b.end < life_a.begin) continue;
        const Home &one = layout.home[static_cast<size_t>(a)], &two = layout.home[static_cast<size_t>(b)];
        if (one.chunk != two.chunk || (one.chunk >= 0 && one.kind != two.kind)) continue;  // other regions
        const Bytes end_a = one.offset + stage.graph.value(a).type.bytes(),
                    end_b = two.offset + stage.graph.value(b).type.bytes();
        EXPECT_TRUE(end_a <= two.offset || end_b <= one.offset)
            << stage.graph.value(a).name << " and " << stage.graph.value(b).name;
      }
    }
  }
}

TEST(Layout, RootsAreThoseOfEveryChainOfUpdatesInAnyOrderOfIds) {
  Graph graph;
  const TensorType type{DType::kF32, {4}};
  for (const ValueId updates : {3, 0, kNoValue, 4, kNoValue, 1}) {
    graph.AddValue({.name = "v", .type = type, .updates = updates});
  }
  const std::vector<ValueId> roots = RootsOf(graph);
  EXPECT_EQ(roots, (std::vector<ValueId>{4, 4, 2, 4, 4, 4}));
  for (ValueId id = 0; id < graph.num_values(); ++id) EXPECT_EQ(roots[static_cast<size_t>(id)], graph.Root(id));
}

}  // namespace
}  // namespace temper::layout_test
