// The placement of values changes no bit: losses, gradient norms and every weight and state after several steps equal
// those of a run with everything on the device, on one rank and on each rank of a mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>

#include "../tiny_run.h"
#include "comm/local/local_communicator.h"
#include "graph/named_ops.h"

namespace temper::memory_test {
namespace {

using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

constexpr int kSteps = 2;  // the second is of weights and states that the first has changed

struct Outcome {
  std::vector<float> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> state;
};

Outcome Train(TinyRun& run) {
  Outcome o;
  for (int step = 0; step < kSteps; ++step) {
    tiny::Batch batch = run.MakeBatch(static_cast<uint64_t>(step));
    run.Step(batch);
    o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end());
    o.norms.push_back(run.grad_norm());
    tiny::Batch held_out = run.MakeBatch(100);
    run.Evaluate(held_out);
    o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end());
  }
  o.state = run.State();
  return o;
}

Bytes Moved(const Program& program) {
  Bytes sum{};
  for (const LinkTraffic& t : TrafficOfStep(program)) sum += t.bytes;
  return sum;
}

void ExpectSameOutcome(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, bytes] : a.state) EXPECT_TRUE(bytes == b.state.at(name)) << name;
}

struct Case {
  std::string name;
  RunSpec spec;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

std::vector<Case> Cases() {
  const auto llama = [](bool tied, Method method, Recompute recompute, DType dtype) {
    return RunSpec{.config = tiny::LlamaConfigText(tied),
                   .method = method,
                   .dtype = dtype,
                   .dropout = method == Method::kFull ? 0 : 0.1,
                   .recompute = recompute};
  };
  constexpr auto kNone = Recompute::kNone, kSelective = Recompute::kSelective, kBlock = Recompute::kBlock;
  return {{"full_tied", llama(true, Method::kFull, kNone, DType::kF32)},
          {"full_bf16_recomputed", llama(false, Method::kFull, kBlock, DType::kBF16)},
          {"full_tied_bf16_selective", llama(true, Method::kFull, kSelective, DType::kBF16)},
          {"lora_bf16", llama(true, Method::kLora, kNone, DType::kBF16)},
          {"lora_recomputed", llama(false, Method::kLora, kBlock, DType::kF32)},
          {"lora_with_head", llama(false, Method::kLoraWithHead, kNone, DType::kF32)},
          {"lora_beside_modules_in_full_bf16_recomputed",
           {.method = Method::kLora,
            .saved = {"embed_tokens", "norm", "v_proj"},
            .dtype = DType::kBF16,
            .recompute = kBlock}},
          {"opt", {.config = tiny::OptConfigText(true)}},
          {"qwen3_bf16_selective", {.config = tiny::Qwen3ConfigText(), .dtype = DType::kBF16, .recompute = kSelective}},
          {"qwen3_lora_recomputed", {.config = tiny::Qwen3ConfigText(), .method = Method::kLora, .recompute = kBlock}},
          {"gemma3_bf16_recomputed", {.config = tiny::Gemma3ConfigText(), .dtype = DType::kBF16, .recompute = kBlock}},
          {"gpt2_selective", {.config = tiny::Gpt2ConfigText(), .recompute = kSelective}},
          {"starcoder2", {.config = tiny::Starcoder2ConfigText()}},
          {"opt_projected_lora", {.config = tiny::OptConfigText(false), .method = Method::kLora}},
          {"one_micro_batch", {.micro_batches = 1, .threads = 2}},
          {"not_clipped", {.max_norm = 0}},
          {"not_clipped_bf16_lora", {.method = Method::kLora, .dtype = DType::kBF16, .threads = 2, .max_norm = 0}},
          {"one_micro_batch_not_clipped", {.micro_batches = 1, .max_norm = 0}},
          {"one_micro_batch_not_clipped_bf16_recomputed",
           {.dtype = DType::kBF16, .micro_batches = 1, .recompute = kBlock, .max_norm = 0}},
          {"sgd", {.optimizer = UpdateRuleOf(Op::kSgd), .settings = UpdateSettings(Op::kSgd)}},
          {"sgd_bf16_nesterov_not_clipped",
           {.dtype = DType::kBF16,
            .optimizer = UpdateRuleOf(Op::kSgd),
            .settings = UpdateSettings(Op::kSgd, {{"nesterov", 1}}),
            .max_norm = 0}},
          {"lion", {.optimizer = UpdateRuleOf(Op::kLion), .settings = UpdateSettings(Op::kLion)}},
          {"lion_bf16",
           {.dtype = DType::kBF16, .optimizer = UpdateRuleOf(Op::kLion), .settings = UpdateSettings(Op::kLion)}},
          {"adamw_8bit", {.optimizer = UpdateRuleOf(Op::kAdamw8bit), .settings = UpdateSettings(Op::kAdamw8bit)}},
          {"adamw_8bit_bf16_lora",
           {.method = Method::kLoraWithHead,
            .dtype = DType::kBF16,
            .optimizer = UpdateRuleOf(Op::kAdamw8bit),
            .settings = UpdateSettings(Op::kAdamw8bit)}},
          {"muon_bf16_not_clipped",
           {.dtype = DType::kBF16,
            .optimizer = UpdateRuleOf(Op::kMuon),
            .settings = UpdateSettings(Op::kMuon),
            .max_norm = 0}},
          {"adafactor", {.optimizer = UpdateRuleOf(Op::kAdafactor), .settings = UpdateSettings(Op::kAdafactor)}},
          {"adafactor_bf16_not_clipped",
           {.dtype = DType::kBF16,
            .optimizer = UpdateRuleOf(Op::kAdafactor),
            .settings = UpdateSettings(Op::kAdafactor),
            .max_norm = 0}},
          {"average", {.ema_decay = 0.5}},
          {"stochastic_rounding", {.dtype = DType::kBF16, .stochastic_rounding = true}},
          {"stochastic_rounding_not_clipped",
           {.dtype = DType::kBF16, .micro_batches = 1, .max_norm = 0, .ema_decay = 0.9, .stochastic_rounding = true}},
          {"average_bf16_lora_not_clipped",
           {.method = Method::kLora, .dtype = DType::kBF16, .max_norm = 0, .ema_decay = 0.9}},
          {"average_sgd_without_momentum",
           {.micro_batches = 1,
            .optimizer = UpdateRuleOf(Op::kSgd),
            .settings = UpdateSettings(Op::kSgd, {{"momentum", 0}}),
            .ema_decay = 0.9}},
          {"sgd_without_momentum",
           {.optimizer = UpdateRuleOf(Op::kSgd), .settings = UpdateSettings(Op::kSgd, {{"momentum", 0}})}},
          {"sgd_without_momentum_stochastic_rounding",
           {.dtype = DType::kBF16,
            .optimizer = UpdateRuleOf(Op::kSgd),
            .settings = UpdateSettings(Op::kSgd, {{"momentum", 0}}),
            .stochastic_rounding = true}},
          {"sgd_without_momentum_bf16",
           {.dtype = DType::kBF16,
            .micro_batches = 1,
            .optimizer = UpdateRuleOf(Op::kSgd),
            .settings = UpdateSettings(Op::kSgd, {{"momentum", 0}})}}};
}

class MemoryEquivalence : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    TinyRun run(spec());
    everything_ = run.train().arena_bytes;
    has_states_ = std::any_of(run.train().buffers.begin(), run.train().buffers.end(),
                              [](const Buffer& b) { return b.role == Role::kOptimizerState; });
    expected_ = Train(run);
  }
  const RunSpec& spec() const { return GetParam().spec; }

  // The same run with that memory: within the device's limit, and with some moves.
  void ExpectSameBits(const MemorySpec& memory, const std::string& what) {
    SCOPED_TRACE(what);
    RunSpec limited = spec();
    limited.memory = memory;
    limited.memory.matrices = TrainedMatrices::kStored;  // casts could make moves needless
    limited.through_text = true;
    TinyRun run(limited);
    if (memory.device != kNoLimit) {
      EXPECT_LE(run.train().arena_bytes, memory.device);
    }
    const bool states_alone = !memory.weights && !memory.gradients && !memory.activations && memory.optimizer;
    EXPECT_EQ(Moved(run.train()) > Bytes{0}, has_states_ || !states_alone);
    ExpectSameOutcome(Train(run), expected_);
  }

  Bytes everything_;
  bool has_states_ = false;
  Outcome expected_;
};

TEST_P(MemoryEquivalence, EveryPlacementGivesTheBitsOfOneWithoutLimits) {
  ExpectSameBits({.policy = TierPolicy::kHost}, "host");
  ExpectSameBits({.policy = TierPolicy::kHost, .activations = Tier::kHost}, "host, activations too");
  ExpectSameBits({.optimizer = Tier::kHost}, "optimizer at the host");
  ExpectSameBits({.optimizer = Tier::kDisk}, "optimizer on the disk");
  ExpectSameBits({.gradients = Tier::kHost}, "gradients at the host");
  ExpectSameBits({.activations = Tier::kHost}, "activations at the host");
  ExpectSameBits({.weights = Tier::kHost}, "weights at the host");
  ExpectSameBits({.weights = Tier::kDisk, .gradients = Tier::kDisk, .optimizer = Tier::kDisk}, "all on the disk");
  constexpr int64_t kPart = 333;  // elements: neither whole blocks nor whole rows
  ExpectSameBits({.optimizer = Tier::kDisk, .update_part = kPart}, "optimizer on the disk, in parts");
  ExpectSameBits({.weights = Tier::kDisk, .gradients = Tier::kDisk, .optimizer = Tier::kDisk, .update_part = kPart},
                 "all on the disk, in parts");
  ExpectSameBits({.optimizer = Tier::kDisk, .activations = Tier::kHost, .update_part = kPart},
                 "optimizer on the disk, in parts, activations at the host");
  for (const double share : {0.9, 0.8}) {
    const Bytes limit{static_cast<int64_t>(static_cast<double>(everything_.v) * share)};
    ExpectSameBits({.device = limit}, fmt::format("auto within {} %", share * 100));
    ExpectSameBits({.device = limit, .host = limit / 2, .disk = true}, fmt::format("auto, disk, {} %", share * 100));
  }
}

TEST_P(MemoryEquivalence, RecomputationWithinALimitGivesTheBitsOfOneWithoutLimits) {
  for (const double share : {0.9, 0.75, 0.65}) {
    RunSpec limited = spec();
    limited.recompute = Recompute::kAuto;
    limited.memory.device = {static_cast<int64_t>(static_cast<double>(everything_.v) * share)};
    limited.through_text = true;
    TinyRun run(limited);
    SCOPED_TRACE(fmt::format("{} %", share * 100));
    EXPECT_LE(run.train().arena_bytes, limited.memory.device);
    ExpectSameOutcome(Train(run), expected_);
  }
}

// Each gradient is used as soon as it is complete. If an option places
// gradients, they wait there, which gives the same bits (above).
TEST(MemoryOfAStep, WithoutClippingAndWithOneMicroBatchHasFewGradientsAtOnce) {
  RunSpec spec{.config = tiny::LlamaConfigText(/*tied=*/false, /*hidden=*/128, /*blocks=*/8, /*vocab=*/64),
               .row = 8,
               .micro_batches = 1};
  const TinyRun clipped(spec);
  spec.max_norm = 0;
  const TinyRun free(spec);
  const Bytes gradients = clipped.train().peak.gradients;
  EXPECT_GT(gradients, Bytes{});
  EXPECT_EQ(free.train().peak.gradients, Bytes{});
  EXPECT_LT(free.train().arena_bytes, clipped.train().arena_bytes - gradients * 3 / 4);
}

// A tied embedding's gradient lives from the head to the end of the
// backward; with a separate update it could be evicted meanwhile.
TEST(MemoryOfAStep, WithoutClippingFitsIfAClippedOneDoes) {
  RunSpec spec{.config = tiny::LlamaConfigText(/*tied=*/true, /*hidden=*/64, /*blocks=*/6, /*vocab=*/160),
               .dtype = DType::kBF16,
               .row = 64,
               .micro_batches = 1,
               .recompute = Recompute::kBlock,
               .threads = 1};
  const auto model = tiny::MakeModel(spec.config);
  const auto forward = [&](bool training) {
    Graph graph = model->Forward({.dtype = spec.dtype, .tokens = spec.row, .row = spec.row, .training = training});
    if (training) TrainAllWeights(&graph);
    return graph;
  };
  const Graph train = forward(true), eval = forward(false);
  const Bytes all = TinyRun(spec).train().arena_bytes;
  Bytes least = all;
  for (Bytes too_little{}; least - too_little > Bytes{all.v / 100};) {
    StepSpec clipped{.recompute = spec.recompute, .threads = spec.threads};
    clipped.memory.device = {(least.v + too_little.v) / 2};
    (CompileGraphs(TrainAndEval(train, eval), clipped).ok() ? least : too_little) = clipped.memory.device;
  }
  spec.max_norm = 0;
  TinyRun open(spec);
  spec.memory.device = least;
  TinyRun limited(spec);
  EXPECT_LE(limited.train().arena_bytes, least);
  ExpectSameOutcome(Train(limited), Train(open));
}

// Values outside the device move during the backward, not after it.
TEST(MemoryOfAStep, WithoutClippingUpdatesWeightsBeforeOthersHaveGradients) {
  for (const int micro_batches : {1, 3}) {
    // Moves that do not slow kernels down.
    RunSpec spec{.micro_batches = micro_batches, .memory = {.optimizer = Tier::kDisk}};
    spec.memory.links.copies = spec.memory.links.disk = {};
    const auto products_after_first_update = [&](double max_norm) {
      spec.max_norm = max_norm;
      const TinyRun run(spec);
      int updates = 0, products_after = 0;
      bool may_update = false;  // the checkpoint being written has read its data
      for (const Call& call : run.train().schedule) {
        may_update |= call.kind == Call::Kind::kBeforeUpdate;
        if (call.kind != Call::Kind::kRun) continue;
        const Binding& binding = run.train().bindings[static_cast<size_t>(call.binding)];
        for (const Instruction& i : run.train().segments[static_cast<size_t>(binding.segment)].instructions) {
          updates += i.op == Op::kAdamw;
          EXPECT_TRUE(i.op != Op::kAdamw || may_update);
          products_after += i.op == Op::kLinearDw && updates > 0;
        }
      }
      return products_after;
    };
    EXPECT_EQ(products_after_first_update(1.0), 0);
    EXPECT_GT(products_after_first_update(0), 10) << "of some 20 products of 3 blocks";
    spec.memory.links.disk = {.slows = 10};
    EXPECT_EQ(products_after_first_update(0), 0) << "kernels beside a move would be slowed down";
  }
}

// The checkpoint writer reads weights and states where they live.
TEST(MemoryOfAStep, ChangesACheckpointsValuesOnlyAfterBeforeUpdate) {
  const MemorySpec memories[] = {{},
                                 {.policy = TierPolicy::kHost},
                                 {.optimizer = Tier::kDisk, .update_part = 333},
                                 {.weights = Tier::kDisk, .optimizer = Tier::kHost}};
  for (const MemorySpec& memory : memories) {
    for (const double max_norm : {0.0, 1.0}) {
      for (const int micro_batches : {1, 3}) {
        const TinyRun run(
            {.dtype = DType::kBF16, .micro_batches = micro_batches, .max_norm = max_norm, .memory = memory});
        const Program& step = run.train();
        const auto saved = [&](Bytes address) {
          return std::any_of(step.buffers.begin(), step.buffers.end(), [&](const Buffer& b) {
            const bool holds = b.role == Role::kWeight || b.role == Role::kOptimizerState;
            return holds && address >= b.offset && address < b.offset + b.type.bytes();
          });
        };
        int said = 0, changed = 0, too_soon = 0;
        for (const Call& call : step.schedule) {
          said += call.kind == Call::Kind::kBeforeUpdate;
          if (call.kind != Call::Kind::kRun) continue;
          const Binding& binding = step.bindings[static_cast<size_t>(call.binding)];
          for (const Instruction& i : step.segments[static_cast<size_t>(binding.segment)].instructions) {
            for (const int operand : i.outputs) {
              if (!saved(binding.offsets[static_cast<size_t>(operand)])) continue;
              ++changed;
              too_soon += said == 0;
            }
          }
        }
        EXPECT_EQ(said, 1);
        EXPECT_GT(changed, 0);
        EXPECT_EQ(too_soon, 0);
      }
    }
  }
}

// Gradients go to the states, weights come back; no instruction reads the old weight.
TEST(MemoryTraffic, OfStatesOnTheHostIsGradientsThereAndWeightsBack) {
  RunSpec spec{.config = tiny::LlamaConfigText(false), .dtype = DType::kBF16, .memory = {.optimizer = Tier::kHost}};
  const TinyRun run(spec);
  Bytes weights{}, gradients{};
  for (const Buffer& b : run.train().buffers) {
    if (b.role == Role::kWeight) weights += b.type.bytes();
    if (b.role == Role::kGradient) gradients += b.type.bytes();
  }
  const Bytes scalars = KiB(1);  // learning rate, clipping factor
  for (const LinkTraffic& t : TrafficOfStep(run.train())) {
    EXPECT_EQ(std::max(t.from, t.to), Tier::kHost);
    const Bytes least = t.to == Tier::kHost ? gradients : weights;
    EXPECT_GE(t.bytes, least);
    EXPECT_LE(t.bytes, least + scalars);
  }
}

int64_t PartsMoved(const Program& program) {
  int64_t parts = 0;
  for (const Segment& segment : program.segments) {
    for (const Instruction& i : segment.instructions) parts += IsMove(i.op) && i.attributes.Has("count") ? 1 : 0;
  }
  return parts;
}

// The last part of a large matrix is waited for, so that it does not stay at the host beside those of others.
TEST(MemoryOfAStep, WaitsForTheLastOfLargePartsAndKeepsTheBits) {
  RunSpec spec{.config = tiny::LlamaConfigText(false, 64, 1, 34'000),
               .dtype = DType::kBF16,
               .micro_batches = 1,
               .memory = {.optimizer = Tier::kDisk}};
  TinyRun whole(spec);
  spec.memory.update_part = kUpdatePart + 2048;
  TinyRun parts(spec);
  ASSERT_GT(PartsMoved(parts.train()), 0);
  int waited_for = 0;
  for (const Segment& segment : parts.train().segments) {
    for (const Instruction& i : segment.instructions) {
      const bool last = i.op == Op::kEvict && i.attributes.Has("begin") && i.attributes.Int("begin") > 0;
      waited_for += last && !i.attributes.Flag("background") ? 1 : 0;
    }
  }
  EXPECT_EQ(waited_for, 2 * 3) << "master and two states, of the embedding and of the head";
  ExpectSameOutcome(Train(parts), Train(whole));
}

// States on the disk pass through the host in parts: it need not hold all states of a weight.
TEST(MemoryTraffic, OfAnUpdateInPartsIsThatOfAWholeOneWithLittleHostMemory) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    RunSpec spec{.config = tiny::LlamaConfigText(false), .dtype = dtype, .memory = {.optimizer = Tier::kDisk}};
    const TinyRun whole(spec);
    spec.memory.update_part = 256;
    const TinyRun parts(spec);
    EXPECT_EQ(PartsMoved(whole.train()), 0);
    EXPECT_GT(PartsMoved(parts.train()), 0);
    const auto traffic = TrafficOfStep(parts.train()), expected = TrafficOfStep(whole.train());
    ASSERT_EQ(traffic.size(), expected.size());
    for (size_t i = 0; i < traffic.size(); ++i) {
      EXPECT_EQ(traffic[i].from, expected[i].from);
      EXPECT_EQ(traffic[i].to, expected[i].to);
      EXPECT_EQ(traffic[i].bytes, expected[i].bytes);
    }
    std::map<std::string, Bytes> states;  // by weight
    Bytes largest{};
    for (const Buffer& b : whole.train().buffers) {
      if (b.role != Role::kOptimizerState) continue;
      states[b.name.substr(b.name.find(':') + 1)] += b.type.bytes();
    }
    for (const auto& [name, bytes] : states) largest = std::max(largest, bytes);
    EXPECT_GE(whole.train().host.bytes, largest);
    EXPECT_LT(parts.train().host.bytes, largest);
    EXPECT_EQ(parts.train().host.peak.activations, Bytes{}) << "only copies are moved in parts";
    EXPECT_GT(parts.train().host.peak.staged, Bytes{});
    // So this limit is met, while whole states would not fit.
    spec.memory.host = parts.train().host.bytes;
    spec.memory.disk = true;
    EXPECT_LE(TinyRun(spec).train().host.bytes, spec.memory.host);
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, MemoryEquivalence, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

struct RanksOutcome {
  std::vector<Outcome> outcomes;
  std::vector<Bytes> device, moved;
  std::vector<StepChoice> choices;
};

// All ranks of the mesh of `spec`, each with its own memory.
RanksOutcome TrainRanks(const RunSpec& spec, const std::function<MemorySpec(size_t rank)>& memory_of) {
  const int ranks = spec.mesh.mesh.ranks();
  ThreadWorld world(ranks);
  const auto n = static_cast<size_t>(ranks);
  RanksOutcome all{std::vector<Outcome>(n), std::vector<Bytes>(n), std::vector<Bytes>(n), std::vector<StepChoice>(n)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      RunSpec own = spec;
      const auto communicator = world.Join(rank);
      own.communicator = communicator.get();
      own.mesh.rank = rank;
      own.threads = 1;
      own.memory = memory_of(r);
      own.through_text = true;
      TinyRun run(own);
      all.device[r] = run.train().arena_bytes;
      all.moved[r] = Moved(run.train());
      all.choices[r] = run.chosen().choice;
      all.outcomes[r] = Train(run);
    });
  }
  for (std::thread& t : threads) t.join();
  return all;
}

// All ranks of a mesh with the same limits.
class MemoryOnMeshes : public testing::TestWithParam<Case> {
 protected:
  static RanksOutcome TrainAll(const MemorySpec& memory) {
    return TrainRanks(GetParam().spec, [&](size_t) { return memory; });
  }

  // `all_move`: every rank must have moves.
  void ExpectSameBits(const RanksOutcome& expected, const MemorySpec& memory, bool all_move, const std::string& what) {
    SCOPED_TRACE(what);
    const RanksOutcome got = TrainAll(memory);
    for (size_t r = 0; r < got.outcomes.size(); ++r) {
      SCOPED_TRACE(fmt::format("rank {}", r));
      if (memory.device != kNoLimit) {
        EXPECT_LE(got.device[r], memory.device);
      }
      if (all_move) {
        EXPECT_GT(got.moved[r], Bytes{0});
      }
      ExpectSameOutcome(got.outcomes[r], expected.outcomes[r]);
    }
    EXPECT_GT(std::accumulate(got.moved.begin(), got.moved.end(), Bytes{}), Bytes{0});
  }
};

TEST_P(MemoryOnMeshes, EveryPlacementGivesTheBitsOfOneWithoutLimits) {
  const RanksOutcome everything = TrainAll({});
  for (const Bytes moved : everything.moved) EXPECT_EQ(moved, Bytes{0});
  const auto same = [&](const MemorySpec& memory, const std::string& what) {
    ExpectSameBits(everything, memory, /*all_move=*/true, what);
  };
  same({.policy = TierPolicy::kHost}, "host");
  same({.policy = TierPolicy::kHost, .activations = Tier::kHost}, "host, activations too");
  same({.activations = Tier::kHost}, "activations at the host");
  same({.weights = Tier::kHost}, "weights at the host");
  same({.weights = Tier::kDisk, .gradients = Tier::kDisk, .optimizer = Tier::kDisk}, "all on the disk");
  same({.optimizer = Tier::kDisk, .activations = Tier::kHost, .update_part = 333},
       "optimizer on the disk, in parts, activations at the host");
  const Bytes most = *std::max_element(everything.device.begin(), everything.device.end());
  for (const double share : {0.9, 0.8}) {
    const Bytes limit{static_cast<int64_t>(static_cast<double>(most.v) * share)};
    ExpectSameBits(everything, {.device = limit}, false, fmt::format("auto within {} %", share * 100));
    ExpectSameBits(everything, {.device = limit, .host = limit / 2, .disk = true}, false,
                   fmt::format("auto, disk, {} %", share * 100));
  }
}

// A stage that is short of memory recomputes what another keeps, with the same result. The first stage has more
// micro-batches in flight, the last has the head.
TEST(MemoryOfStages, EachRecomputesByItsOwnLimitWithTheBitsOfNoLimit) {
  for (const PipelineKind kind : {PipelineKind::kOneForwardOneBackward, PipelineKind::kZeroBubble}) {
    RunSpec spec{.config = tiny::LlamaConfigText(/*tied=*/false, /*hidden=*/64, /*blocks=*/4), .row = 64};
    spec.mesh.mesh.set_size(Axis::kPp, 2);
    spec.mesh.mesh.set_size(Axis::kFsdp, 2);
    spec.mesh.pipeline.kind = kind;
    spec.rows_per_micro_batch = 2;
    const auto with = [&](Recompute recompute, const std::function<MemorySpec(size_t)>& memory_of) {
      RunSpec chosen = spec;
      chosen.recompute = recompute;
      return TrainRanks(chosen, memory_of);
    };
    const auto open = [](size_t) { return MemorySpec(); };
    const RanksOutcome kept = with(Recompute::kNone, open), again = with(Recompute::kBlock, open);
    for (const size_t small_stage : {0u, 1u}) {
      SCOPED_TRACE(fmt::format("{}, stage {} is small", ToString(kind), small_stage));
      const RanksOutcome got = with(Recompute::kAuto, [&](size_t rank) {
        // Moves are too slow to help.
        MemorySpec memory{.device = rank / 2 == small_stage ? again.device[rank] : kept.device[rank]};
        memory.links.host_to_device = memory.links.device_to_host = 1e3;
        return memory;
      });
      for (size_t rank = 0; rank < 4; ++rank) {
        SCOPED_TRACE(fmt::format("rank {}", rank));
        EXPECT_EQ(got.choices[rank].recompute != Recompute::kNone, rank / 2 == small_stage);
        EXPECT_EQ(got.choices[rank], got.choices[rank / 2 * 2]) << "ranks that gather together choose alike";
        EXPECT_LE(got.device[rank], rank / 2 == small_stage ? again.device[rank] : kept.device[rank]);
        EXPECT_EQ(got.moved[rank], Bytes{});
        ExpectSameOutcome(got.outcomes[rank], kept.outcomes[rank]);
      }
    }
  }
}

std::vector<Case> CasesOnMeshes() {
  const auto on = [](std::initializer_list<std::pair<Axis, int>> sizes, RunSpec spec = {}) {
    for (const auto& [axis, size] : sizes) spec.mesh.mesh.set_size(axis, size);
    spec.rows_per_micro_batch = spec.mesh.mesh.size(DataAxes(spec.mesh.mesh));
    return spec;
  };
  const auto stages = [&](PipelineKind kind, Recompute recompute, DType dtype = DType::kF32) {
    RunSpec spec = on({{Axis::kPp, 2}}, {.dtype = dtype, .recompute = recompute});
    spec.mesh.pipeline.kind = kind;
    if (kind == PipelineKind::kInterleaved) spec.mesh.pipeline.chunks_per_stage = 2;
    if (kind == PipelineKind::kInterleaved) spec.mesh.pipeline.layers = {0, 1, 1, 1};
    return spec;
  };
  RunSpec gathered_once = on({{Axis::kPp, 2}, {Axis::kFsdp, 2}});
  gathered_once.mesh.gathered_blocks = kAllBlocks;
  RunSpec reduced_once = on({{Axis::kPp, 2}, {Axis::kFsdp, 2}});
  reduced_once.mesh.decisions.grad_sync = GradSync::kStep;
  constexpr auto kNone = Recompute::kNone, kBlock = Recompute::kBlock;
  return {{"fsdp2", on({{Axis::kFsdp, 2}})},
          {"fsdp2_bf16_recomputed", on({{Axis::kFsdp, 2}}, {.dtype = DType::kBF16, .recompute = kBlock})},
          {"fsdp2_lora", on({{Axis::kFsdp, 2}}, {.method = Method::kLora, .dtype = DType::kBF16, .dropout = 0.1})},
          {"tp2", on({{Axis::kTp, 2}})},
          {"cp2", on({{Axis::kCp, 2}})},
          {"dp2_not_clipped", on({{Axis::kDp, 2}}, {.max_norm = 0})},
          {"dp2_fsdp2_one_micro_batch_not_clipped",
           on({{Axis::kDp, 2}, {Axis::kFsdp, 2}}, {.micro_batches = 1, .max_norm = 0})},
          {"dp2_one_micro_batch_not_clipped_untied",
           on({{Axis::kDp, 2}}, {.config = tiny::LlamaConfigText(false), .micro_batches = 1, .max_norm = 0})},
          {"pp2", stages(PipelineKind::kOneForwardOneBackward, kNone)},
          {"pp2_bf16_recomputed", stages(PipelineKind::kOneForwardOneBackward, kBlock, DType::kBF16)},
          {"pp2_interleaved", stages(PipelineKind::kInterleaved, kNone)},
          {"pp2_zero_bubble", stages(PipelineKind::kZeroBubble, kNone)},
          {"pp2_lora", on({{Axis::kPp, 2}}, {.method = Method::kLora, .dropout = 0.1})},
          {"pp2_fsdp2_gathered_once", gathered_once},
          {"pp2_fsdp2_reduced_once", reduced_once}};
}
INSTANTIATE_TEST_SUITE_P(Meshes, MemoryOnMeshes, testing::ValuesIn(CasesOnMeshes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace temper::memory_test
