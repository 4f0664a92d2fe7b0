// Passes that must not change a result, on random graphs: what they make is run with the reference kernels and compared
// with what the graph itself gives, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "compile/recompute.h"
#include "graph/builder.h"
#include "runtime/executor.h"

namespace temper {
namespace {

constexpr int64_t T = 6, D = 8, V = 12;

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  size_t operator()(size_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state_ >> 33) % n);
  }

 private:
  uint64_t state_;
};

// A loss over a random web of ops on [T, D] values. Each node reads any earlier value of its own block or what enters
// the block; some values are read many times, some never, some weights train and some do not.
Graph RandomForward(uint64_t seed, DType dtype) {
  Draws draw(seed);
  Graph graph;
  GraphBuilder build(&graph);
  int weights = 0;
  const auto weight = [&](Shape shape) {
    const ValueId id = build.Source("w" + std::to_string(weights++), {dtype, shape}, Role::kWeight);
    graph.value(id).trainable = draw(3) > 0;
    return id;
  };
  const auto index = [&](const char* name) { return build.Source(name, {DType::kI32, {T}}, Role::kInput); };
  const ValueId token = index("token"), target = index("target");
  const ValueId rng = build.Source("rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
  const ValueId table = weight({V, D});
  graph.value(table).trainable = true;
  std::vector<ValueId> pool = {build.Embedding(table, token, 0, "x")};
  const int blocks = 1 + static_cast<int>(draw(3));
  for (int block = 0; block < blocks; ++block) {
    build.EnterBlock(block, "block" + std::to_string(block) + ".");
    if (pool.size() > 2) pool.erase(pool.begin(), pool.end() - 2);
    const size_t nodes = 2 + draw(9);
    for (size_t n = 0; n < nodes; ++n) {
      const auto any = [&] {
        return pool[draw(4) == 0 ? draw(pool.size()) : pool.size() - 1 - draw(std::min<size_t>(2, pool.size()))];
      };
      const std::string name = "n" + std::to_string(n);
      ValueId y = kNoValue;
      switch (draw(10)) {
        case 0:
          y = build.Add(Op::kRelu, {any()}, {}, name)[0];
          break;
        case 1:
          y = build.Add(Op::kGelu, {any()}, {{"tanh", static_cast<int64_t>(draw(2))}}, name)[0];
          break;
        case 2:
          y = build.Swiglu(any(), any(), name);
          break;
        case 3:
          y = build.Add(Op::kDropout, {any(), rng}, {{"p", 0.25}}, name)[0];
          break;
        case 4:
          y = build.RmsNorm(any(), weight({D}), 1e-5, name);
          break;
        case 5: {
          const ValueId w = weight({D}), b = weight({D});
          graph.value(b).trainable = graph.value(w).trainable;
          y = build.LayerNorm(any(), w, b, 1e-5, name);
          break;
        }
        case 6:
          y = build.Linear(any(), weight({D, D}), draw(2) ? weight({D}) : kNoValue, name);
          break;
        case 7:
          y = build.Sum(any(), build.Linear(any(), weight({D, D}), kNoValue, name + "p"), name);
          break;
        default:
          y = build.Sum(any(), any(), name);
      }
      pool.push_back(y);
    }
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {pool.back(), table, target}, {}, "loss", Role::kOutput);
  return graph;
}

using Buffers = std::map<std::string, std::vector<std::byte>>;

// Runs `graph` once on random inputs and weights (by name, so the same for every graph of one net), all other memory
// filled with rubbish; returns losses and gradients.
Buffers Execute(const Graph& graph) {
  TEMPER_CHECK(Verify(graph).ok()) << Verify(graph).message();
  auto programs = Place(std::vector<ProgramPlan>{{"step", {{&graph, 0, 1}}}}, 1);
  TEMPER_CHECK(programs.ok()) << programs.status().message();
  const Program& program = (*programs)[0];
  auto arena = Arena::Create(program.arena_bytes);
  std::memset((*arena)->At({0}), 0xFF, static_cast<size_t>(program.arena_bytes.v));  // NaN
  auto executor = Executor::Create(program, **arena, ReferenceKernels());
  TEMPER_CHECK(executor.ok()) << executor.status().message();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    const View view = (*executor)->BufferView(static_cast<int>(i));
    const RngKey key{.seed = 3, .name_hash = HashName(b.name)};
    for (int64_t k = 0; k < b.type.shape.elements(); ++k) {
      const auto n = static_cast<uint64_t>(k);
      if (b.type.dtype == DType::kI32) view.as<int32_t>()[n] = static_cast<int32_t>(UniformAt(key, n) * V);
      if (b.type.dtype == DType::kI64) view.as<int64_t>()[n] = k;
      if (b.type.dtype == DType::kF32) view.as<float>()[n] = NormalAt(key, n);
      if (b.type.dtype == DType::kBF16) view.as<bf16>()[n] = ToBF16(NormalAt(key, n));
    }
  }
  const Status status = (*executor)->Run({});
  TEMPER_CHECK(status.ok()) << status.message();
  Buffers result;
  for (const Buffer& b : program.buffers) {
    if (b.role != Role::kOutput && b.role != Role::kGradient) continue;
    const std::byte* data = (*arena)->At(b.offset);
    result[b.name] = {data, data + b.type.bytes().v};
  }
  return result;
}

constexpr int kGraphs = 400;

class RandomGraphs : public testing::TestWithParam<DType> {};

TEST_P(RandomGraphs, UpdatingInPlaceChangesNoBit) {
  int64_t updates = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const Graph graph = Differentiate(RandomForward(seed, GetParam()), seed % 2 == 0);
    const Graph in_place = UpdateInPlace(graph);
    ASSERT_EQ(Execute(in_place), Execute(graph)) << "seed " << seed << "\n" << PrintGraph(in_place);
    for (ValueId id = 0; id < graph.num_values(); ++id)
      updates += in_place.value(id).updates != graph.value(id).updates;
  }
  EXPECT_GT(updates, 5 * kGraphs) << "there was little to update in place";
}

TEST_P(RandomGraphs, RecomputingChangesNoBit) {
  std::map<Recompute, int64_t> clones;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const Graph graph = Differentiate(Fuse(RandomForward(seed, GetParam())), seed % 2 == 0);
    const Buffers want = Execute(graph);
    for (const Recompute mode : {Recompute::kSelective, Recompute::kBlock}) {
      const Graph again = RecomputeBlocks(graph, {.mode = mode});
      ASSERT_EQ(Execute(again), want) << "seed " << seed << "\n" << PrintGraph(again);
      ASSERT_EQ(Execute(UpdateInPlace(again)), want) << "seed " << seed;
      clones[mode] += static_cast<int64_t>(again.nodes().size() - graph.nodes().size());
    }
  }
  EXPECT_GT(clones[Recompute::kSelective], kGraphs / 10);
  EXPECT_GT(clones[Recompute::kBlock], kGraphs);
}

// Fusing rounds once where there were two roundings; in f32 results agree to a few units in the last place of the
// terms, which cancellation in random nets magnifies: compared as vectors.
TEST(RandomGraphsInF32, FusingChangesOnlyRounding) {
  int folded = 0;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const Graph plain = RandomForward(seed, DType::kF32), fused = Fuse(plain);
    folded += plain.nodes().size() != fused.nodes().size();
    const Buffers a = Execute(Differentiate(plain, false)), b = Execute(Differentiate(fused, false));
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, bytes] : a) {
      const auto* x = reinterpret_cast<const float*>(bytes.data());
      const auto* y = reinterpret_cast<const float*>(b.at(name).data());
      double difference = 0, norm = 0;
      for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        difference += std::pow(static_cast<double>(x[i]) - y[i], 2);
        norm += std::pow(static_cast<double>(x[i]), 2);
      }
      ASSERT_LE(std::sqrt(difference), 1e-3 * std::sqrt(norm) + 1e-5) << "seed " << seed << " " << name;
    }
  }
  EXPECT_GT(folded, kGraphs / 20);
}

TEST_P(RandomGraphs, EveryPassesGraphReadsBackToItself) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Graph graph = UpdateInPlace(
        RecomputeBlocks(Differentiate(Fuse(RandomForward(seed, GetParam())), true), {.mode = Recompute::kBlock}));
    const std::string text = PrintGraph(graph);
    const auto back = ReadGraph(text);
    ASSERT_TRUE(back.ok()) << back.status().message();
    ASSERT_EQ(PrintGraph(*back), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RandomGraphs, testing::Values(DType::kF32, DType::kBF16),
                         [](const testing::TestParamInfo<DType>& info) { return std::string(ToString(info.param)); });

}  // namespace
}  // namespace temper
