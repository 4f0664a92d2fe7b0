#include "compile/mesh/ring.h"

#include <gtest/gtest.h>

#include "compile/layout/addresses.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::ring_test {
namespace {

constexpr int64_t kRow = 48, kHeads = 4, kKvHeads = 2, kE = 16;

// Forward and backward of one attention over a row split among
// `ranks`; `wanted` selects which of d_q, d_k, d_v are used.
Graph AttentionOf(int64_t ranks, int64_t index, DType dtype = DType::kBF16, std::array<bool, 3> wanted = {1, 1, 1}) {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = 2 * kRow / ranks;
  const TensorType wide{dtype, {T, kHeads * kE}}, narrow{dtype, {T, kKvHeads * kE}};
  const ValueId start = build.TokenInput("document_start", DType::kI32, T);
  const Attributes to = {{"dtype", std::string(ToString(dtype))}};
  const auto made = [&](const char* name, const TensorType& type) {
    return build.Add(Op::kCast, {build.Source(std::string(name) + "_in", type, Role::kWeight)}, to, name)[0];
  };
  const ValueId q = made("q", wide), k = made("k", narrow), v = made("v", narrow), d_o = made("d_o", wide);
  const Attributes a = {{"heads", kHeads}, {"kv_heads", kKvHeads},      {"scale", 0.25},  {"window", int64_t{0}},
                        {"row", kRow},     {"axes", std::string("cp")}, {"ranks", ranks}, {"index", index}};
  const auto o = build.Add(Op::kAttention, {q, k, v, start}, a, "o");
  const auto d = build.Add(Op::kAttentionBackward, {d_o, q, k, v, o[0], o[1], start}, a, "d");
  for (size_t i = 0; i < 3; ++i) {
    if (wanted[i]) build.Add(Op::kRelu, {d[i]}, {}, "read");
  }
  return graph;
}

Graph Lowered(const Graph& graph, bool background = true) {
  Graph lowered = LowerRings(graph, {.background = background});
  TEMPER_CHECK(Verify(lowered).ok()) << Verify(lowered).message() << PrintGraph(lowered);
  return lowered;
}

std::vector<const Node*> NodesOf(const Graph& graph, Op op) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes()) {
    if (node.op == op) nodes.push_back(&node);
  }
  return nodes;
}

TEST(Ring, EveryRankGetsAllKeysOnceInTheOrderOfShifts) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (int64_t index = 0; index < ranks; ++index) {
      const Graph graph = Lowered(AttentionOf(ranks, index));
      EXPECT_TRUE(NodesOf(graph, Op::kAttention).empty());
      EXPECT_TRUE(NodesOf(graph, Op::kAttentionBackward).empty());
      for (const Op op : {Op::kAttentionStep, Op::kAttentionStepBackward}) {
        const auto steps = NodesOf(graph, op);
        ASSERT_EQ(static_cast<int64_t>(steps.size()), ranks);
        for (int64_t s = 0; s < ranks; ++s) {
          const Attributes& a = steps[static_cast<size_t>(s)]->attributes;
          EXPECT_EQ(a.Int("origin"), (index + ranks - s) % ranks);
          EXPECT_EQ(a.Flag("acc"), s > 0);
        }
      }
    }
  }
}

TEST(Ring, LeavesOtherAttentionAlone) {
  Graph graph = AttentionOf(2, 0);
  for (Node& node : graph.nodes()) {
    if (node.op != Op::kAttention && node.op != Op::kAttentionBackward) continue;
    Attributes plain;
    for (const char* key : {"heads", "kv_heads", "scale", "window", "row"}) plain.Set(key, *node.attributes.Find(key));
    node.attributes = plain;
  }
  EXPECT_EQ(PrintGraph(LowerRings(graph, {})), PrintGraph(graph));
}

// The table of docs/design/parallel.md.
TEST(Ring, SendsKeysAndValuesAndTheirGradientsAround) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int64_t ranks : {2, 3, 4}) {
      const Graph graph = Lowered(AttentionOf(ranks, 1, dtype));
      const int64_t elements = 2 * (2 * kRow / ranks) * kKvHeads * kE;  // of k and v
      int64_t sent = 0;
      for (const Node& node : graph.nodes()) sent += CostOf(graph, node).sent.v;
      EXPECT_EQ(sent, 2 * (ranks - 1) * elements * SizeOf(dtype) + ranks * elements * 4) << ranks;
    }
  }
}

TEST(Ring, UnusedGradientsAreNotShifted) {
  const auto sent = [](std::array<bool, 3> wanted) {
    const Graph graph = Lowered(AttentionOf(2, 0, DType::kF32, wanted));
    int64_t bytes = 0;
    for (const Node& node : graph.nodes()) bytes += CostOf(graph, node).sent.v;
    return bytes;
  };
  const int64_t one = kRow * kKvHeads * kE * 4;
  EXPECT_EQ(sent({true, true, true}), 2 * 2 * one + 2 * 2 * one);
  EXPECT_EQ(sent({true, false, true}), 2 * 2 * one + 2 * one);
  EXPECT_EQ(sent({true, false, false}), 2 * 2 * one);
}

// Causal attention is split evenly: each step has the same arithmetic on all ranks, and all steps have the same, except
// the one within a rank's own tokens (whose diagonal adds half a pair per token).
TEST(Ring, HasTheSameWorkInEveryStepOnEveryRank) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    for (const Op op : {Op::kAttentionStep, Op::kAttentionStepBackward}) {
      std::vector<double> first;
      double whole = 0;
      for (int64_t index = 0; index < ranks; ++index) {
        const Graph graph = Lowered(AttentionOf(ranks, index));
        std::vector<double> flops;
        for (const Node* node : NodesOf(graph, op)) flops.push_back(CostOf(graph, *node).flops.v);
        if (index == 0) first = flops;
        EXPECT_EQ(flops, first) << "rank " << index << " of " << ranks;
        for (const double f : flops) whole += f;
      }
      for (size_t s = 2; s < first.size(); ++s) EXPECT_EQ(first[s], first[1]);
      const double chunk = kRow / (2.0 * static_cast<double>(ranks));
      EXPECT_DOUBLE_EQ(first[0] / first[1], (2 * chunk * chunk + chunk) / (2 * chunk * chunk));
      // In total the work of a single rank: kRow (kRow + 1) / 2 pairs of each of two rows.
      const double per_pair = (op == Op::kAttentionStep ? 4.0 : 10.0) * kHeads * kE;
      EXPECT_DOUBLE_EQ(whole, 2 * per_pair * kRow * (kRow + 1) / 2);
    }
  }
}

TEST(Ring, ShiftsRunBesideTheKernelOfTheirStep) {
  const Graph graph = Lowered(AttentionOf(3, 0));
  const auto& nodes = graph.nodes();
  for (const Node* node : NodesOf(graph, Op::kShift)) EXPECT_TRUE(node->attributes.Flag("background"));
  // Shifts in flight during a step's kernel must not touch its operands.
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op != Op::kAttentionStep && nodes[i].op != Op::kAttentionStepBackward) continue;
    const bool last = nodes[i].attributes.Int("origin") == 1;
    const bool backward = nodes[i].op == Op::kAttentionStepBackward;
    EXPECT_EQ(nodes[i - 1].op == Op::kShift, !last || backward) << i;
  }
  const Graph plain = Lowered(AttentionOf(3, 0), /*background=*/false);
  for (const Node* node : NodesOf(plain, Op::kShift)) EXPECT_FALSE(node->attributes.Flag("background"));
}

// With any number of ranks, keys and values of two ranks, and two sets of sums of their gradients, are alive at once.
TEST(Ring, TakesTheMemoryOfTwoRanksKeys) {
  std::vector<int64_t> bytes;
  for (const int64_t ranks : {3, 4, 6}) {
    const Graph graph = UpdateInPlace(Lowered(AttentionOf(ranks, 0)));
    const auto programs = AssignAddresses(std::vector<ProgramPlan>{{"train", {{&graph, 0, 1}}}}, 1);
    ASSERT_TRUE(programs.ok()) << programs.status().message();
    bytes.push_back((*programs)[0].peak.activations.v / (2 * kRow / ranks));
  }
  EXPECT_LE(bytes[1], bytes[0]) << "bytes per token";
  EXPECT_LE(bytes[2], bytes[0]);
}

}  // namespace
}  // namespace temper::ring_test
