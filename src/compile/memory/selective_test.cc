#include "compile/memory/selective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compile/memory/recompute.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::selective_test {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  int operator()(int n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

// A block like Llama's: attention and swiglu, each with its norm, rope and residual, and a dropout; and a loss.
Graph Block() {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = 128, D = 64, F = 192;
  const auto source = [&](const std::string& name, Shape shape, Role role, DType dtype = DType::kF32) {
    const ValueId id = build.Source(name, {dtype, shape}, role);
    graph.value(id).trainable = role == Role::kWeight;
    return id;
  };
  const auto weight = [&](const std::string& name, int64_t out, int64_t in) {
    return source(name + ".weight", {out, in}, Role::kWeight);
  };
  const ValueId rng = source("rng", {kNumRngWords}, Role::kInput, DType::kI64);
  const ValueId target = source("target", {T}, Role::kInput, DType::kI32);
  const ValueId token = source("token", {T}, Role::kInput, DType::kI32);
  const ValueId start = source("document_start", {T}, Role::kInput, DType::kI32);
  const ValueId position = source("position", {T}, Role::kInput, DType::kI32);
  const ValueId table = weight("table", 512, D);
  ValueId x = build.Embedding(table, token, 0, "x");
  const ValueId angles =
      build.Add(Op::kRopeTable, {position}, {{"inv_freq", std::vector<double>(8, 0.5)}}, "rope_table")[0];
  build.EnterBlock(0, "");
  const ValueId y = build.RmsNorm(x, source("norm1.weight", {D}, Role::kWeight), 1e-5, "norm1");
  const auto rotated = [&](const std::string& name) {
    const ValueId plain = build.Linear(y, weight(name, D, D), kNoValue, name);
    return build.Add(Op::kRope, {plain, angles}, {{"head_dim", int64_t{16}}}, name + ".rotated")[0];
  };
  const ValueId q = rotated("q"), k = rotated("k"), v = build.Linear(y, weight("v", D, D), kNoValue, "v");
  const ValueId o = build.Add(Op::kAttention, {q, k, v, start},
                              {{"heads", int64_t{4}}, {"kv_heads", int64_t{4}}, {"scale", 0.25}}, "attention")[0];
  x = build.Sum(x, build.Linear(o, weight("o", D, D), kNoValue, "o"), "residual1");
  const ValueId z = build.RmsNorm(x, source("norm2.weight", {D}, Role::kWeight), 1e-5, "norm2");
  const ValueId gate = build.Linear(z, weight("gate", F, D), kNoValue, "gate");
  const ValueId up = build.Linear(z, weight("up", F, D), kNoValue, "up");
  const ValueId h = build.Add(Op::kGlu, {gate, up}, {}, "swiglu")[0];
  const ValueId dropped = build.Add(Op::kDropout, {h, rng}, {{"p", 0.5}}, "dropout")[0];
  x = build.Sum(x, build.Linear(dropped, weight("down", D, F), kNoValue, "down"), "residual2");
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

std::set<std::string> Again(const Graph& graph) {
  const std::vector<bool> again = CheapToRecompute(graph);
  std::set<std::string> names;
  for (size_t i = 0; i < again.size(); ++i) {
    if (again[i]) names.insert(graph.value(graph.nodes()[i].outputs[0]).name);
  }
  return names;
}

TEST(Selective, RecomputesNormsAndActivationsButNoNodeThatSavesNothing) {
  // Rotated q and k are as large as the unrotated ones, which nothing else needs: they are kept.
  EXPECT_EQ(Again(Differentiate(Fuse(Block()), true)), (std::set<std::string>{"norm1", "norm2", "swiglu", "dropout"}));
}

TEST(Selective, ValuesThatNoGradientNeedsAreNotRecomputed) {
  Graph frozen = Block();
  for (ValueId id = 0; id < frozen.num_values(); ++id) {
    const std::string& name = frozen.value(id).name;
    frozen.value(id).trainable = name == "q.weight" || name == "gate.weight";
  }
  // No gradient reads swiglu's result. q's reads norm1's; but norm1's own gradient, for which its input would be kept,
  // is not needed, so an input of the same size would have to be kept instead.
  EXPECT_EQ(Again(Differentiate(Fuse(frozen), true)), (std::set<std::string>{"norm2"}));
}

// The weighted cost: bytes kept from the forward for the backward of a block, plus bytes that clones move.
int64_t CostOfRunning(const Graph& graph, const std::vector<bool>& again) {
  std::vector<int> maker(static_cast<size_t>(graph.num_values()), -1);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].phase != Phase::kForward) continue;
    for (const ValueId id : graph.nodes()[i].outputs) maker[static_cast<size_t>(id)] = static_cast<int>(i);
  }
  std::vector<bool> read_elsewhere(maker.size(), false), needed(maker.size(), false);
  std::vector<ValueId> open;
  const auto need = [&](ValueId id) {
    if (needed[static_cast<size_t>(id)] || maker[static_cast<size_t>(id)] < 0) return;
    needed[static_cast<size_t>(id)] = true;
    open.push_back(id);
  };
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kForward) continue;
    for (const ValueId id : node.inputs) {
      const int m = maker[static_cast<size_t>(id)];
      if (m < 0) continue;
      if (graph.nodes()[static_cast<size_t>(m)].block != node.block) read_elsewhere[static_cast<size_t>(id)] = true;
      if (node.block >= 0) need(id);
    }
  }
  int64_t cost = 0;
  std::set<int> ran;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const int m = maker[static_cast<size_t>(id)];
    const Node& node = graph.nodes()[static_cast<size_t>(m)];
    if (!again[static_cast<size_t>(m)]) {
      if (!read_elsewhere[static_cast<size_t>(id)]) cost += 16 * graph.value(id).type.bytes().v;
      continue;
    }
    if (!ran.insert(m).second) continue;
    const Cost moved = CostOf(graph, node);
    cost += (moved.read + moved.written).v;
    for (const ValueId input : node.inputs) need(input);
  }
  return cost;
}

// A block of random elementwise ops, norms and products.
Graph RandomBlock(uint64_t seed) {
  Draws draw(seed);
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = 16, D = 16;
  const auto weight = [&](const std::string& name, Shape shape) {
    const ValueId id = build.Source(name, {DType::kF32, shape}, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  };
  const ValueId target = build.TokenInput("target", DType::kI32, T);
  const ValueId token = build.TokenInput("token", DType::kI32, T);
  const ValueId rng = build.Source("rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
  const ValueId table = weight("table", {32, D});
  std::vector<ValueId> values = {build.Embedding(table, token, 0, "x")};
  build.EnterBlock(0, "");
  for (int i = 0; i < 9; ++i) {
    const std::string name = std::to_string(i);
    const ValueId a = values[static_cast<size_t>(draw(static_cast<int>(values.size())))], b = values.back();
    switch (draw(6)) {
      case 0:
        values.push_back(build.Linear(b, weight("w" + name, {D, D}), kNoValue, "linear" + name));
        break;
      case 1:
        values.push_back(build.RmsNorm(b, weight("n" + name, {D}), 1e-5, "norm" + name));
        break;
      case 2:
        values.push_back(build.Add(Op::kGlu, {a, b}, {}, "swiglu" + name)[0]);
        break;
      case 3:
        values.push_back(build.Add(Op::kDropout, {b, rng}, {{"p", 0.5}}, "dropout" + name)[0]);
        break;
      case 4:
        values.push_back(build.Add(Op::kGelu, {b}, {}, "gelu" + name)[0]);
        break;
      default:
        values.push_back(a == b ? build.Add(Op::kRelu, {a}, {}, "relu" + name)[0] : build.Sum(a, b, "sum" + name));
        break;
    }
  }
  const ValueId last = build.Linear(values.back(), weight("w", {D, D}), kNoValue, "last");
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {last, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

TEST(Selective, NoOtherChoiceCostsLess) {
  int64_t better_than_none = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Graph graph = Differentiate(RandomBlock(seed), false);
    const std::vector<bool> chosen = CheapToRecompute(graph);
    std::vector<size_t> cheap;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& n = graph.nodes()[i];
      const bool product = n.op == Op::kLinear || n.op == Op::kAttention;
      if (n.phase == Phase::kForward && n.block == 0 && !product) cheap.push_back(i);
      if (chosen[i]) {
        EXPECT_TRUE(n.phase == Phase::kForward && n.block == 0 && !product) << seed;
      }
    }
    ASSERT_LE(cheap.size(), 9u);
    int64_t least = INT64_MAX;
    std::vector<bool> some(graph.nodes().size(), false);
    const int64_t none = CostOfRunning(graph, some);
    for (size_t bits = 0; bits < size_t{1} << cheap.size(); ++bits) {
      for (size_t k = 0; k < cheap.size(); ++k) some[cheap[k]] = (bits >> k & 1) != 0;
      least = std::min(least, CostOfRunning(graph, some));
    }
    EXPECT_EQ(CostOfRunning(graph, chosen), least) << "seed " << seed << "\n" << PrintGraph(graph);
    better_than_none += least < none;
  }
  EXPECT_GT(better_than_none, 200);
}

}  // namespace
}  // namespace temper::selective_test
