// The choice of `memory.recompute: auto`: by the estimate never slower than any mode that a user could set, for limits
// down to the need of one instruction.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "compile/estimate/rank_clock.h"
#include "graph/named_ops.h"
#include "model/lora_rewrite.h"

namespace temper::memory_choice_test {
namespace {

using tiny::Must;

const char* const kLlama = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4000, "hidden_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 768})";
constexpr int64_t kTokens = 2048, kRow = 512;

struct Compiled {
  std::vector<Program> programs;
  ChosenMemory chosen;
  Seconds step;
};

Result<Compiled> Compile(bool lora, Recompute recompute, const MemorySpec& memory, const char* config = kLlama,
                         int recompute_blocks = kAllBlocks) {
  const auto model = tiny::MakeModel(config);
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = kTokens, .row = kRow, .training = true});
  Graph eval = model->Forward({.dtype = DType::kBF16, .tokens = kRow, .row = kRow, .training = false});
  if (lora) {
    const auto targets = Must(ResolveLora(model->modules(), {}));
    forward = AddLora(forward, targets, 0);
    eval = AddLora(eval, targets, 0);
  } else {
    TrainAllWeights(&forward);
  }
  Compiled result;
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled,
                          CompileGraphs(TrainAndEval(forward, eval), {.micro_batches = 3,
                                                                      .recompute = recompute,
                                                                      .recompute_blocks = recompute_blocks,
                                                                      .threads = 2,
                                                                      .memory = memory}));
  result.programs = compiled.programs.all();
  result.chosen = std::move(compiled.memory);
  result.step =
      EstimateStep(result.programs[0], {.device = &memory.rates, .host = &memory.host_rates, .links = memory.links})
          .step;
  return result;
}

MemorySpec Limited(Bytes device, double bytes_per_second) {
  MemorySpec memory{.device = device};
  memory.links.host_to_device = memory.links.device_to_host = bytes_per_second;
  return memory;
}

Bytes Share(Bytes bytes, double share) {
  return {static_cast<int64_t>(static_cast<double>(bytes.v) * share)};
}

TEST(MemoryChoice, RecomputesNothingIfEverythingFits) {
  for (const bool lora : {false, true}) {
    const Compiled open = Must(Compile(lora, Recompute::kNone, {}));
    const Compiled free = Must(Compile(lora, Recompute::kAuto, {}));
    const Compiled wide = Must(Compile(lora, Recompute::kAuto, Limited(open.programs[0].arena_bytes, 1e9)));
    for (const Compiled* one : {&free, &wide}) {
      EXPECT_EQ(one->chosen.choice, StepChoice());
      EXPECT_TRUE(one->chosen.text.empty());
      EXPECT_TRUE(OptionLines(one->chosen.options).empty());
      EXPECT_EQ(PrintProgram(one->programs[0]), PrintProgram(open.programs[0]));
    }
  }
}

TEST(MemoryChoice, IsNoSlowerThanAnyModeThatAUserCouldSet) {
  for (const bool lora : {false, true}) {
    const Bytes all = Must(Compile(lora, Recompute::kNone, {})).programs[0].arena_bytes;
    for (const double rate : {5e8, 8e9}) {
      for (const double share : {0.8, 0.4}) {
        SCOPED_TRACE(fmt::format("lora {}, {} bytes/s, {:.0f} %", lora, rate, 100 * share));
        const MemorySpec memory = Limited(Share(all, share), rate);
        const Compiled chosen = Must(Compile(lora, Recompute::kAuto, memory));
        EXPECT_LE(chosen.programs[0].arena_bytes, memory.device);
        for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kBlock}) {
          const auto named = Compile(lora, mode, memory);
          if (named.ok()) {
            EXPECT_LE((1 - kWorthwhile) * chosen.step.v, 1.0001 * named->step.v) << ToString(mode);
          }
        }
        // Its description is accurate.
        EXPECT_NEAR((chosen.chosen.stall + chosen.chosen.compute).v, chosen.step.v, 1e-9);
        if (chosen.chosen.options.empty()) {  // the first choice was good enough
          EXPECT_EQ(chosen.chosen.choice, StepChoice());
          EXPECT_LE(chosen.chosen.stall.v, kWorthwhile * chosen.step.v);
          continue;
        }
        const StepOption& first = chosen.chosen.options.front();
        EXPECT_TRUE(first.fits);
        EXPECT_EQ(first.choice, chosen.chosen.choice);
        EXPECT_EQ(first.device, chosen.programs[0].arena_bytes);
        EXPECT_EQ(first.host, chosen.programs[0].host.bytes);
        for (const StepOption& o : chosen.chosen.options) EXPECT_TRUE(!o.fits || first.step <= o.step);
        EXPECT_EQ(OptionLines(chosen.chosen.options).size(), chosen.chosen.options.size() + 1);
      }
    }
  }
}

// Ways that keep too much for the backward are not compiled (compile/memory/held_activations.h).
TEST(MemoryChoice, WhatItCallsTooLargeFailsAlone) {
  MemorySpec memory = Limited(Share(Must(Compile(true, Recompute::kBlock, {})).programs[0].arena_bytes, 1.02), 8e9);
  memory.activations = Tier::kDevice;
  const Compiled chosen = Must(Compile(true, Recompute::kAuto, memory));
  int too_large = 0;
  for (const StepOption& o : chosen.chosen.options) {
    if (o.fits || !o.tried || o.step > Seconds{}) continue;  // others were compiled, and so was the first
    ++too_large;
    const auto alone = Compile(true, o.choice.recompute, memory, kLlama, o.choice.recompute_blocks);
    EXPECT_EQ(alone.status().code(), StatusCode::kOutOfMemory) << o.choice.ToString();
  }
  EXPECT_GE(too_large, 2);
}

TEST(MemoryChoice, RecomputesToAvoidSlowLinksAndUsesFastOnes) {
  const Bytes all = Must(Compile(true, Recompute::kNone, {})).programs[0].arena_bytes;
  const Compiled slow = Must(Compile(true, Recompute::kAuto, Limited(Share(all, 0.6), 2e8)));
  EXPECT_NE(slow.chosen.choice.recompute, Recompute::kNone);
  EXPECT_GT(slow.chosen.options.size(), 1u);
  const Compiled fast = Must(Compile(true, Recompute::kAuto, Limited(Share(all, 0.6), 1e13)));
  EXPECT_EQ(fast.chosen.choice.recompute, Recompute::kNone);
  EXPECT_FALSE(TrafficOfStep(fast.programs[0]).empty());
  EXPECT_GT(fast.chosen.stall.v, 0);
  EXPECT_TRUE(fast.chosen.options.empty()) << "no other choice is tried for less than kWorthwhile";
}

// Where states do not fit beside bf16 weights, but beside their masters alone.
TEST(MemoryChoice, CastsWeightsIfThatFitsAndOtherwiseLeavesTheirCopies) {
  MemorySpec cast;
  cast.matrices = TrainedMatrices::kCast;
  const Program whole = Must(Compile(false, Recompute::kNone, cast)).programs[0];
  const Bytes least = whole.arena_bytes, masters = whole.peak.weights + whole.peak.optimizer;
  for (const Recompute mode : {Recompute::kNone, Recompute::kAuto}) {
    const Compiled fits = Must(Compile(false, mode, Limited(least, 1e9)));
    EXPECT_EQ(fits.chosen.choice, (StepChoice{.casts = true}));
    EXPECT_TRUE(TrafficOfStep(fits.programs[0]).empty());
    EXPECT_EQ(fits.chosen.options.size(), 2u) << "with and without copies";
  }
  MemorySpec alone = Limited(least, 1e9);
  alone.host = Bytes{0};
  EXPECT_EQ(Must(Compile(false, Recompute::kNone, alone)).chosen.choice, (StepChoice{.casts = true}));
  const Compiled small = Must(Compile(false, Recompute::kNone, Limited(Share(masters, 0.95), 1e9)));
  EXPECT_FALSE(small.chosen.choice.casts);
  for (const StepOption& o : small.chosen.options) EXPECT_FALSE(o.choice.casts) << "masters alone exceed the device";
  cast.device = Share(masters, 0.95);
  const auto refused = Compile(false, Recompute::kNone, cast);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("memory.bf16_weights: auto"), std::string::npos);
}

// With slow links, the memory that smaller scratch of the head leaves
// for residents is worth more than another pass over the head.
TEST(MemoryChoice, CutsTheLossFinerIfThatIsFasterAndAllowed) {
  const char* const wide_head = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 16000, "hidden_size": 256,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 768})";
  const auto compile = [&](const MemorySpec& memory) {
    return Must(Compile(false, Recompute::kBlock, memory, wide_head));
  };
  MemorySpec memory = Limited(Share(compile({}).programs[0].arena_bytes, 0.5), 5e7);
  const Compiled free = compile(memory);
  EXPECT_LT(free.chosen.choice.loss_chunk, kDefaultLossChunk);
  EXPECT_LE(free.programs[0].arena_bytes, memory.device);
  memory.loss_chunks_keep_bits = false;
  const Compiled kept = compile(memory);
  EXPECT_EQ(kept.chosen.choice.loss_chunk, kDefaultLossChunk);
  EXPECT_LT(free.step, kept.step);
}

// The smallest limit, to three percent, that is not refused.
Bytes LeastLimit(bool lora, Recompute mode) {
  int64_t low = 0, high = Must(Compile(lora, mode, {})).programs[0].arena_bytes.v;
  while (high - low > high / 30) {
    const int64_t middle = (low + high) / 2;
    (Compile(lora, mode, Limited({middle}, 8e9)).ok() ? high : low) = middle;
  }
  return {high};
}

TEST(MemoryChoice, FitsIntoAnyLimitDownToTheLeastByCuttingTheLossFinerAndThenNamesTheInstruction) {
  const Bytes least = LeastLimit(false, Recompute::kAuto);
  const Compiled tight = Must(Compile(false, Recompute::kAuto, Limited(least, 8e9)));
  EXPECT_LT(tight.chosen.choice.loss_chunk, kDefaultLossChunk);
  bool cut = false;
  for (const Segment& segment : tight.programs[0].segments) {
    for (const Instruction& i : segment.instructions) {
      if (i.op == Op::kLinearCrossEntropy) cut = i.attributes.IntOr("chunk", 0) == tight.chosen.choice.loss_chunk;
    }
  }
  EXPECT_TRUE(cut);
  // With more memory it never fails.
  const Bytes all = Must(Compile(false, Recompute::kNone, {})).programs[0].arena_bytes;
  for (const double share : {0.02, 0.1, 0.35, 0.75}) {
    const Bytes limit = least + Share(all - least, share);
    const auto compiled = Compile(false, Recompute::kAuto, Limited(limit, 8e9));
    ASSERT_TRUE(compiled.ok()) << ToString(limit) << ": " << compiled.status().message();
    EXPECT_LE(compiled->programs[0].arena_bytes, limit);
  }
  const auto refused = Compile(false, Recompute::kAuto, Limited(Share(least, 0.9), 8e9));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("alone needs"), std::string::npos) << refused.status().message();
  EXPECT_EQ(refused.status().message().find("memory.recompute"), std::string::npos) << "recomputation was tried";
}

}  // namespace
}  // namespace temper::memory_choice_test
