// Where values live changes no bit: losses, gradient norms and every weight and state after several steps equal those
// of a run that has everything on the device.
#include <gtest/gtest.h>

#include "../tiny_run.h"

namespace temper {
namespace {

using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

constexpr int kSteps = 3;

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
          {"opt", {.config = tiny::OptConfigText(true)}},
          {"opt_projected_lora", {.config = tiny::OptConfigText(false), .method = Method::kLora}},
          {"one_micro_batch", {.micro_batches = 1}}};
}

class MemoryEquivalence : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    TinyRun run(spec());
    everything_ = run.train().arena_bytes;
    expected_ = Train(run);
  }
  const RunSpec& spec() const { return GetParam().spec; }

  // The same run with that memory: within the device's limit, and moving something.
  void ExpectSameBits(const MemorySpec& memory, const std::string& what) {
    SCOPED_TRACE(what);
    RunSpec limited = spec();
    limited.memory = memory;
    limited.through_text = true;
    TinyRun run(limited);
    if (memory.device != kNoLimit) {
      EXPECT_LE(run.train().arena_bytes, memory.device);
    }
    EXPECT_GT(Moved(run.train()), Bytes{0});
    ExpectSameOutcome(Train(run), expected_);
  }

  Bytes everything_;
  Outcome expected_;
};

TEST_P(MemoryEquivalence, EveryPlacementGivesTheBitsOfOneWithoutLimits) {
  ExpectSameBits({.placement = MemoryPlacement::kHost}, "host");
  ExpectSameBits({.placement = MemoryPlacement::kHost, .activations = Tier::kHost}, "host, activations too");
  ExpectSameBits({.optimizer = Tier::kHost}, "optimizer at the host");
  ExpectSameBits({.optimizer = Tier::kDisk}, "optimizer on the disk");
  ExpectSameBits({.gradients = Tier::kHost}, "gradients at the host");
  ExpectSameBits({.activations = Tier::kHost}, "activations at the host");
  ExpectSameBits({.weights = Tier::kHost}, "weights at the host");
  ExpectSameBits({.weights = Tier::kDisk, .gradients = Tier::kDisk, .optimizer = Tier::kDisk}, "all on the disk");
  for (const double share : {0.9, 0.8}) {
    const Bytes limit{static_cast<int64_t>(static_cast<double>(everything_.v) * share)};
    ExpectSameBits({.device = limit}, fmt::format("auto within {} %", share * 100));
    ExpectSameBits({.device = limit, .host = limit / 2, .disk = true}, fmt::format("auto, disk, {} %", share * 100));
  }
}

TEST_P(MemoryEquivalence, WhatIsComputedAgainWithinALimitGivesTheBitsOfOneWithoutLimits) {
  for (const double share : {0.9, 0.75, 0.6}) {
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

// Gradients go to where the states are, weights come back; what a weight was before is nobody's operand.
TEST(MemoryTraffic, OfStatesAtTheHostIsGradientsThereAndWeightsBack) {
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

INSTANTIATE_TEST_SUITE_P(Runs, MemoryEquivalence, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace temper
