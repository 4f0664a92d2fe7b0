// Passes that must not change a result, on random graphs: the reference kernels run their output, and its results are
// compared bit for bit with the original graph's.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/layout/addresses.h"
#include "compile/memory/memory_spec.h"
#include "compile/memory/recompute.h"
#include "compile/residency/residency.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "runtime/executor.h"

namespace temper::random_graphs_test {
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

// A loss over a random network of ops on [T, D] values. Each node reads any earlier value of its own block or an input
// of the block; some values are read many times, some never; some weights are trained, some are not.
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
          y = build.Glu(any(), any(), name);
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

// A disk with random delays.
class SlowStore final : public Store {
 public:
  SlowStore(Bytes size, uint64_t seed)
      : bytes_(static_cast<size_t>(size.v), std::byte{0xFF}), key_{.seed = seed, .name_hash = HashName("disk")} {}
  Bytes size() const override { return {static_cast<int64_t>(bytes_.size())}; }
  Status Read(Bytes at, std::span<std::byte> to) override {
    Wait();
    std::memcpy(to.data(), bytes_.data() + at.v, to.size());
    return OkStatus();
  }
  Status Write(Bytes at, std::span<const std::byte> from) override {
    Wait();
    std::memcpy(bytes_.data() + at.v, from.data(), from.size());
    return OkStatus();
  }

 private:
  void Wait() {
    const double x = UniformAt(key_, calls_++);
    if (x > 0.5) std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(200 * (x - 0.5))));
  }
  std::vector<std::byte> bytes_;
  const RngKey key_;
  std::atomic<uint64_t> calls_ = 0;
};

// Runs `graph` once on random inputs and weights (by name, so the same for every graph of one net), all other memory
// filled with garbage; returns losses and gradients. `seed`: of the disk's delays.
Buffers Execute(const Graph& graph, uint64_t seed = 0) {
  TEMPER_CHECK(Verify(graph).ok()) << Verify(graph).message();
  auto programs = AssignAddresses(std::vector<ProgramPlan>{{"step", {{&graph, 0, 1}}}}, 1);
  TEMPER_CHECK(programs.ok()) << programs.status().message();
  const Program& program = (*programs)[0];
  auto arena = Arena::Create(program.arena_bytes);
  auto host = Arena::Create(std::max(program.host.bytes, Bytes{64}));
  for (const auto& memory : {&arena, &host}) {
    std::memset((**memory)->At({0}), 0xFF, static_cast<size_t>((**memory)->size().v));  // NaN
  }
  SlowStore disk(program.disk.bytes, seed);
  auto executor = Executor::Create(program, **arena, ReferenceKernels(), nullptr, {.host = host->get(), .disk = &disk});
  TEMPER_CHECK(executor.ok()) << executor.status().message();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    std::vector<std::byte> bytes(static_cast<size_t>(b.type.bytes().v), std::byte{0xFF});
    const View view{bytes.data(), b.type};
    const RngKey key{.seed = 3, .name_hash = HashName(b.name)};
    for (int64_t k = 0; k < b.type.shape.elements(); ++k) {
      const auto n = static_cast<uint64_t>(k);
      if (b.type.dtype == DType::kI32) view.as<int32_t>()[n] = static_cast<int32_t>(UniformAt(key, n) * V);
      if (b.type.dtype == DType::kI64) view.as<int64_t>()[n] = k;
      if (b.type.dtype == DType::kF32) view.as<float>()[n] = NormalAt(key, n);
      if (b.type.dtype == DType::kBF16) view.as<bf16>()[n] = ToBF16(NormalAt(key, n));
    }
    TEMPER_CHECK((*executor)->Write(static_cast<int>(i), bytes).ok());
  }
  const Status status = (*executor)->Run({});
  TEMPER_CHECK(status.ok()) << status.message();
  Buffers result;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    if (b.role != Role::kOutput && b.role != Role::kGradient) continue;
    std::vector<std::byte>& bytes = result[b.name];
    bytes.resize(static_cast<size_t>(b.type.bytes().v));
    TEMPER_CHECK((*executor)->Read(static_cast<int>(i), bytes).ok());
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
  EXPECT_GT(updates, 5 * kGraphs) << "too few updates in place";
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

// Weights and gradients live anywhere, activations may be evicted, copies have any room: for any order of fetches and
// any delay of the disk nothing deadlocks and no bit changes.
TEST_P(RandomGraphs, PlacingInTiersChangesNoBitAndEnds) {
  const DeviceRates rates = TypicalHost();
  const MemorySpec typical;
  int64_t moves = 0;
  for (uint64_t seed = 1; seed <= kGraphs / 2; ++seed) {
    Draws draw(seed * 977);
    Graph graph = Differentiate(Fuse(RandomForward(seed, GetParam())), seed % 2 == 0);
    if (draw(2) == 0) graph = RecomputeBlocks(std::move(graph), {.mode = Recompute::kBlock});
    const Buffers want = Execute(graph);
    for (int way = 0; way < 3; ++way) {
      Homes homes;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        const Value& value = graph.value(id);
        const bool lives = value.role == Role::kWeight || value.role == Role::kGradient;
        if (lives && graph.Root(id) == id) homes.try_emplace(value.name, static_cast<Tier>(draw(kNumTiers)));
      }
      const std::optional<Tier> leave[] = {Tier::kDevice, Tier::kHost, std::nullopt};
      const ResidencySpec spec{.homes = &homes,
                               .activations = leave[draw(3)],
                               .keep = draw(2) == 0,
                               .device = {static_cast<int64_t>(draw(4) * 2000)},
                               .host = {static_cast<int64_t>(draw(4) * 2000)},
                               .rates = &rates,
                               .links = typical.links};
      const Graph placed = UpdateInPlace(Reside(graph, {}, spec).graph);
      ASSERT_EQ(Execute(placed, seed), want) << "seed " << seed << " way " << way << "\n" << PrintGraph(placed);
      for (const Node& node : placed.nodes()) moves += IsMove(node.op) ? 1 : 0;
    }
  }
  EXPECT_GT(moves, 10 * kGraphs);
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
}  // namespace temper::random_graphs_test
