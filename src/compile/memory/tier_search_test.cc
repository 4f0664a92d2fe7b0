#include "compile/memory/tier_search.h"

#include <gtest/gtest.h>

#include <numeric>

#include "compile/layout/addresses.h"
#include "compile/memory/memory_policy.h"
#include "compile/residency/resident_room.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "compile/step/update.h"
#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::tier_search_test {
namespace {

constexpr int64_t kTokens = 64, kWide = 256, kVocab = 512;
constexpr int kLayers = 8;

// A chain of trained products.
Graph Layers() {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, kTokens);
  const ValueId target = build.TokenInput("target", DType::kI32, kTokens);
  const auto weight = [&](const std::string& name, int64_t rows) {
    const ValueId id = build.Source(name, {DType::kF32, {rows, kWide}}, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  };
  ValueId x = build.Add(Op::kEmbedding, {weight("embedding", kVocab), token}, {}, "x")[0];
  for (int layer = 0; layer < kLayers; ++layer) {
    build.EnterBlock(layer, "", Phase::kForward);
    x = build.Add(Op::kLinear, {x, weight("w" + std::to_string(layer), kWide)}, {}, "y" + std::to_string(layer))[0];
  }
  build.EnterBlock(kBlockAfter, "", Phase::kForward);
  build.Add(Op::kLinearCrossEntropy, {x, weight("head", kVocab), target}, {}, "loss", Role::kOutput);
  return graph;
}

// A step of one micro-batch, whose gradients are laid out among temporaries.
class OneMicroBatch : public testing::Test {
 protected:
  Result<std::vector<Program>> Placed(const std::vector<MovedGraph>& graphs) const {
    ++placed_;
    const Graph &micro_batch = graphs[0].graph.graph, &update = graphs[1].graph.graph;
    return AssignAddresses(
        std::vector<ProgramPlan>{{.name = "train", .stages = {{&micro_batch, 0, 1}, {&update, 0, 1}}}}, 1);
  }

  // `knows`: whether the search knows how gradients are laid out. `threads`: of the search.
  Result<Program> Within(Bytes device, bool knows, int threads = 1, SearchWork* work = nullptr,
                         Seconds known = kNoSeconds) const {
    const std::vector<PipelinePart> whole;
    StepUses uses{.graphs = {{{&micro_batch_, &whole}, 1}, {{&update_, &whole}, 1}}, .gradients_last = knows};
    TEMPER_ASSIGN_OR_RETURN(
        FoundTiers found,
        SearchTiers(
            {.device = device}, std::move(uses), threads,
            [this](const std::vector<MovedGraph>& graphs) { return Placed(graphs); }, Effort::kAll, "", known, work));
    return std::move(found.programs[0]);
  }

  static Bytes Moved(const Program& program) {
    const std::vector<LinkTraffic> traffic = TrafficOfStep(program);
    return std::accumulate(traffic.begin(), traffic.end(), Bytes{},
                           [](Bytes sum, const LinkTraffic& t) { return sum + t.bytes; });
  }

  Bytes Everything() const {
    const auto programs = Placed({{{UpdateInPlace(micro_batch_), {}}}, {{UpdateInPlace(update_), {}}}});
    TEMPER_CHECK(programs.ok()) << programs.status().message();
    return (*programs)[0].arena_bytes;
  }

  mutable int placed_ = 0;  // how often
  const Graph layers_ = Layers();
  const Graph micro_batch_ = Differentiate(layers_, /*accumulate=*/false);
  const Graph update_ = BuildUpdate(layers_, {}, Mesh());
};

// Gradients of half the layers are created after activations of the others are freed: room reserved for all of them
// from the start is not available to states.
TEST_F(OneMicroBatch, MovesLessIfTheSearchKnowsThatGradientsComeLate) {
  const Bytes everything = Everything();
  for (const int percent : {97, 90, 80}) {
    SCOPED_TRACE(percent);
    const Bytes limit = everything * percent / 100;
    const auto knowing = Within(limit, true), unknowing = Within(limit, false);
    ASSERT_TRUE(knowing.ok()) << knowing.status().message();
    ASSERT_TRUE(unknowing.ok()) << unknowing.status().message();
    EXPECT_LE(knowing->arena_bytes, limit);
    EXPECT_LT(Moved(*knowing), Moved(*unknowing));
  }
}

TEST_F(OneMicroBatch, ASearchThatHasDoneEnoughTakesTheFirstWayThatFits) {
  for (const int percent : {97, 80, 60, 45}) {
    SCOPED_TRACE(percent);
    const Bytes limit = Everything() * percent / 100;
    SearchWork whole, late{.nodes = SearchWork::kEnough + 1};
    ASSERT_TRUE(Within(limit, true, 1, &whole).ok());
    const auto found = Within(limit, true, 1, &late);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_LE(found->arena_bytes, limit);
    EXPECT_LT(2 * (late.nodes - SearchWork::kEnough), whole.nodes) << "nodes of graphs that were placed";
  }
}

// A step as fast as the moves of its busiest link alone cannot be beaten: shares that move more are not given
// addresses.
TEST_F(OneMicroBatch, WhatItsBusiestLinkMakesSlowerThanAKnownStepIsNotPlaced) {
  const Bytes limit = Everything() * 45 / 100;
  const auto found = Within(limit, true);
  ASSERT_TRUE(found.ok()) << found.status().message();
  Bytes fetched{};
  for (const LinkTraffic& t : TrafficOfStep(*found)) {
    if (t.to == Tier::kDevice) fetched += t.bytes;
  }
  ASSERT_GT(fetched, Bytes{});
  const MemorySpec memory{.device = limit};
  placed_ = 0;
  const Seconds least{static_cast<double>(fetched.v) / memory.links.host_to_device / 2};
  const auto refused = Within(limit, true, 1, nullptr, least);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(placed_, 0);
}

// Several shares of the device give the same step: the first in order is taken, independent of timing.
TEST_F(OneMicroBatch, PlacementDoesNotDependOnThreadTiming) {
  for (const int percent : {97, 80, 60, 45}) {
    SCOPED_TRACE(percent);
    const Bytes limit = Everything() * percent / 100;
    const auto first = Within(limit, true, 4);
    ASSERT_TRUE(first.ok()) << first.status().message();
    for (int repeat = 0; repeat < 8; ++repeat) {
      const auto again = Within(limit, true, 4);
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(PrintProgram(*again), PrintProgram(*first));
    }
  }
}

// States that leave the device take their gradient along; if the limit is only a little too small, nothing else moves.
TEST_F(OneMicroBatch, MovesOnlyStatesThatDoNotFitAndTheirGradients) {
  const Bytes everything = Everything();
  const auto program = Within(everything * 97 / 100, true);
  ASSERT_TRUE(program.ok()) << program.status().message();
  // For an f32 weight, which is its own master, the gradient goes to the host and the weight comes back: 8 bytes per 8
  // of states. Beside the missing bytes, the search reserves room for copies and packing.
  EXPECT_LE(Moved(*program), everything * 15 / 100);
  for (const Buffer& b : program->buffers) {
    if (b.role != Role::kGradient) continue;
    const std::string weight = b.name.substr(b.name.find(':') + 1);
    const int state = program->FindBuffer("adam_m:" + weight);
    ASSERT_GE(state, 0);
    EXPECT_EQ(b.tier(), program->buffers[static_cast<size_t>(state)].tier()) << b.name;
  }
}

TEST_F(OneMicroBatch, IsCompiledOnceIfNoTierHoldsItsWeightsAndStates) {
  const std::vector<StepChoice> choices =
      ChoicesWithin(Recompute::kAuto, kAllBlocks, kLayers, kTokens, TrainedMatrices::kStored);
  ASSERT_GT(choices.size(), 2u);
  const auto compiled_times = [&](Bytes host) {
    int times = 0;
    const StepMaker make = [&](const StepChoice&) {
      ++times;
      ProgramGraphs train{.name = "train", .trains = true, .update = update_}, eval{.name = "eval"};
      train.micro_batches.push_back({.graph = {micro_batch_, {}}});
      eval.micro_batches.push_back({.graph = {layers_, {}}});
      return Result<StepGraphs>(StepGraphs{{std::move(train), std::move(eval)}});
    };
    const auto found = FitWithin({.device = Everything() / 64, .host = host}, choices, make, 1, nullptr);
    EXPECT_EQ(found.status().code(), StatusCode::kOutOfMemory) << ToString(host);
    return times;
  };
  EXPECT_EQ(compiled_times(Everything() / 4), 1);
  // Here the device is too small for any instruction: another choice might have helped.
  EXPECT_EQ(compiled_times(Everything() * 2), static_cast<int>(choices.size()));
}

TEST(ResidentRoom, GivesEachByteOnlyOncePerNode) {
  // Two graphs: in the first, the value is made at node 2; in the second, it exists from the start.
  const std::vector<size_t> from = {2, 0};
  ResidentRoom room(Bytes{100}, {{Bytes{60}, Bytes{90}, Bytes{10}}, {Bytes{20}}});
  EXPECT_FALSE(room.Take(Bytes{11})) << "node 1 has 10 left";
  EXPECT_TRUE(room.Take(Bytes{10}));
  EXPECT_FALSE(room.Take(Bytes{}, {Bytes{71}, from})) << "the second graph has 70 left";
  EXPECT_TRUE(room.Take(Bytes{}, {Bytes{70}, from}));
  EXPECT_FALSE(room.Take(Bytes{1}));
}

// The loss of relu(x w), with w trained.
Graph Net() {
  constexpr int64_t T = 64, D = 32, V = 48;
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, T);
  const ValueId target = build.TokenInput("target", DType::kI32, T);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  const ValueId w = build.Source("w", {DType::kF32, {D, D}}, Role::kWeight);
  graph.value(w).trainable = true;
  const ValueId x = build.Embedding(table, token, 0, "x");
  const ValueId h = build.Add(Op::kRelu, {build.Linear(x, w, kNoValue, "y")}, {}, "relu")[0];
  build.Add(Op::kLinearCrossEntropy, {h, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

bool AllOnDevice(const Graph& graph, const MemorySpec& memory) {
  const std::vector<PipelinePart> whole;
  const MakePrograms make = [](const std::vector<MovedGraph>& moved) -> Result<std::vector<Program>> {
    return AssignAddresses(std::vector<ProgramPlan>{{.name = "net", .stages = {{&moved[0].graph.graph, 0, 1}}}}, 1);
  };
  const auto found = SearchTiers(memory, {.graphs = {{{&graph, &whole}, 1}}}, 1, make, Effort::kOne, "");
  TEMPER_CHECK(found.ok()) << found.status().message();
  return found->all_on_device;
}

TEST(SearchTiers, OptionsForAbsentValuesMoveNothing) {
  const Graph forward = Fuse(Net()), step = Differentiate(forward, false);
  EXPECT_TRUE(AllOnDevice(forward, {.optimizer = Tier::kDisk}));
  EXPECT_TRUE(AllOnDevice(forward, {.gradients = Tier::kHost, .activations = Tier::kHost}));
  EXPECT_FALSE(AllOnDevice(forward, {.weights = Tier::kHost}));
  EXPECT_TRUE(AllOnDevice(step, {.optimizer = Tier::kDisk}));
  EXPECT_FALSE(AllOnDevice(step, {.gradients = Tier::kHost}));
  EXPECT_FALSE(AllOnDevice(step, {.activations = Tier::kHost}));
}

}  // namespace
}  // namespace temper::tier_search_test
