#include "compile/run/compiled_run.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "compile/memory/tier_search.h"
#include "compile/run/compile_run.h"
#include "format/json.h"
#include "model/families.h"
#include "program/program.h"

namespace temper::compiled_run_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

// With half as many KV heads as heads, and an untied head.
std::unique_ptr<Model> LlamaOf(int vocab, int hidden, int blocks, int heads, int ffn) {
  const Json json = {{"architectures", {"LlamaForCausalLM"}},
                     {"vocab_size", vocab},
                     {"hidden_size", hidden},
                     {"num_hidden_layers", blocks},
                     {"num_attention_heads", heads},
                     {"num_key_value_heads", heads / 2},
                     {"intermediate_size", ffn},
                     {"max_position_embeddings", 256},
                     {"tie_word_embeddings", false}};
  return Must(ModelFromConfig(json, "config.json"));
}

// With `set` on top of the defaults for this method, resolved.
RunConfig ConfigOf(
    TrainMethod method, int64_t row, const std::function<void(RunConfig&)>& set = [](RunConfig&) {}) {
  RunConfig config;
  config.model.model = "config.json";
  config.model.method = method;
  config.data.max_seq_len = row;
  set(config);
  return Must(Resolve(config, {.has_bf16 = true, .today = "2026-01-01"})).config;
}

// A tensor in more slices than a checkpoint may have: known before anything is read or trained.
TEST(CompiledRun, OneThatCouldNotBeSavedIsRefused) {
  static constexpr int kRanks = 20000;
  const auto model = LlamaOf(kRanks, 16, 1, 4, 32);
  const RunConfig config = ConfigOf(TrainMethod::kFull, 16, [](RunConfig& c) { c.mesh.fsdp = kRanks; });
  const auto run = CompileRun(*model, config, kRanks, 0);
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.status().message().find("checkpoints of this run could not be saved: tensor "), std::string::npos);
  EXPECT_NE(run.status().message().find("it has 20000 slices, 16384 at most"), std::string::npos)
      << run.status().message();
}

// So that their saves are checked and the plan's page shows them.
TEST(CompiledRun, ValuesOfOneBlockOfEachKindHaveTheAdaptersOfLaterBlocks) {
  const auto model = LlamaOf(64, 16, 4, 4, 32);
  const auto adapters = [&](std::vector<int64_t> layers) {
    const RunConfig config =
        ConfigOf(TrainMethod::kLora, 16, [&](RunConfig& c) { c.lora.layers_to_transform = layers; });
    const CompiledRun run = Must(CompileRun(*model, config, 1, 0));
    return std::count_if(run.distinct.begin(), run.distinct.end(),
                         [](const std::string& name) { return name.find("lora_") != name.npos; });
  };
  EXPECT_EQ(adapters({}), 14);  // A and B of seven modules
  EXPECT_EQ(adapters({2, 3}), 14);
}

// A pipeline whose stages need different amounts, in memory with room for both, for one, and for neither.
TEST(CompiledRun, StagesCompiledTogetherEqualThoseOfTheirRanks) {
  const auto model = LlamaOf(2048, 512, 7, 8, 1024);
  const RunConfig config = ConfigOf(TrainMethod::kFull, 64, [](RunConfig& c) {
    c.batch.gradient_accumulation_steps = 4;
    c.mesh.pp = 2;
    c.mesh.fsdp = 2;
  });
  constexpr int kRanks = 4;
  const auto of_rank = [&](int rank) { return CompileRun(*model, config, kRanks, rank); };
  const std::vector<CompiledRun> open = Must(CompileStages(kRanks, of_rank));
  ASSERT_EQ(open.size(), 2u);
  const Bytes first = open[0].train().arena_bytes, second = open[1].train().arena_bytes;
  const Bytes least = std::min(first, second), both = first + second;
  ASSERT_NE(first, second);
  int limited = 0;
  for (const Bytes room : {both, both - least / 8, least * 7 / 4}) {  // for two ranks, one of each stage
    const Bytes beside = MiB(153) + room / 128;                       // RoomForArenas
    const RankMemory memory{.each = {beside + room / 2}, .ranks_per_machine = kRanks};
    const std::vector<CompiledRun> stages =
        Must(CompileStagesWithin(memory, *model, config, kRanks, MemorySpecOf(config)));
    ASSERT_EQ(stages.size(), 2u);
    for (int stage = 0; stage < 2; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << ", " << ToString(room) << " for two ranks");
      const CompiledRun &run = stages[static_cast<size_t>(stage)],
                        own = Must(CompileWithin(memory, *model, config, kRanks, 2 * stage));
      EXPECT_EQ(PrintProgram(run.train()), PrintProgram(own.train()));
      EXPECT_EQ(run.limited_because, own.limited_because);
      EXPECT_EQ(run.hashes_without_limits, own.hashes_without_limits);
      limited += !run.limited_because.empty();
    }
  }
  EXPECT_EQ(limited, 3) << "one stage, then both";
}

// Two blocks of q, k, v, o [32 x 32, 16 x 32, 16 x 32, 32 x 32], gate, up, down [48 x 32], and the head [64 x 32].
TEST(CompiledRun, CountsTheArithmeticThatTheModelRequires) {
  const auto model = LlamaOf(64, 32, 2, 4, 48);
  constexpr int64_t kWeights = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32) + 64 * 32;
  for (const TrainMethod method : {TrainMethod::kFull, TrainMethod::kLora}) {
    const RunConfig config = ConfigOf(method, 16);
    const CompiledRun run = Must(CompileRun(*model, config));
    EXPECT_EQ(run.work.weights, kWeights);
    // Forward q k^T and p v, twice that backward: of 10 tokens, 55 pairs, 32 columns, two blocks.
    EXPECT_EQ(run.AttentionFlops(10).v, 2 * 12.0 * 32 * 55);
    const double per_weight = method == TrainMethod::kFull ? 6 : 4;
    EXPECT_EQ(run.ModelFlops(100, Flops{7}).v, per_weight * kWeights * 100 + 7);
  }
}

// Two blocks and a head: their matrices are packed, and all but the first block's q, k and v a second time: nothing
// before those is trained.
TEST(CompiledRun, PacksFrozenWeightsWhereThereIsRoomForTheirSecondLayout) {
  const auto model = LlamaOf(64, 512, 2, 8, 1024);
  RunConfig config = ConfigOf(TrainMethod::kLora, 16);
  const auto compile = [&](Bytes available, bool packs) {
    return Must(CompileWithin({.each = {available}, .ranks_per_machine = 1, .packs = packs}, *model, config));
  };
  const CompiledRun plain = compile(GiB(8), false), packed = compile(GiB(8), true);
  EXPECT_EQ(plain.packed, std::nullopt);
  EXPECT_EQ(plain.hashes_without_limits, std::nullopt);
  constexpr int64_t kBlocks = 2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512), kHead = 64 * 512;
  constexpr int64_t kMatrices = kBlocks + kHead, kQkv = 2 * 512 * 512;
  const int64_t second = 2 * (kMatrices - kQkv);
  EXPECT_GE(packed.packed->v, second);
  EXPECT_LE(packed.packed->v, second + second / 400) << "a line beside each panel of 32 KiB and more";
  const Bytes more = packed.train().arena_bytes - plain.train().arena_bytes;
  EXPECT_LE(more.v, second + 2 * second / 400) << "one copy, and the lines of the other";
  EXPECT_GT(more.v, second / 2) << "but for the scratch of packing";
  EXPECT_EQ(packed.hashes_without_limits, HashesOf(plain.programs)) << "they resume each other";
  EXPECT_NE(ProgramHash(packed.train()), ProgramHash(plain.train()));

  const auto expect_plain = [&](const CompiledRun& run) {
    EXPECT_EQ(run.packed, std::nullopt);
    EXPECT_EQ(ProgramHash(run.train()), ProgramHash(plain.train()));
  };
  expect_plain(compile(MiB(159) + plain.train().arena_bytes * 66 / 64, true));
  config.memory.device = plain.train().arena_bytes;
  expect_plain(compile(GiB(8), true));
  config.memory.device = packed.train().arena_bytes;
  EXPECT_TRUE(compile(GiB(8), true).packed);
  // Requested tiers are no reason to take more than the machine has.
  config.memory.device.reset();
  config.memory.policy = TierPolicy::kDevice;
  expect_plain(compile(MiB(159) + plain.train().arena_bytes * 66 / 64, true));
  EXPECT_TRUE(compile(MiB(159) + plain.train().arena_bytes * 66 / 64, true).room.ok());
  const Status refused = compile(MiB(140) + plain.train().arena_bytes, true).room;
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.message().find("because memory.tiers is set"), std::string::npos) << refused.message();
  EXPECT_TRUE(compile(GiB(8), true).packed);
  config.memory.policy = TierPolicy::kAuto;

  // What a plan of this machine prints is what its run reserves.
  const std::vector<CompiledRun> planned = Must(CompileStagesWithin(
      {.each = {GiB(8)}, .ranks_per_machine = 1, .packs = true}, *model, config, 1, MemorySpecOf(config)));
  EXPECT_EQ(ProgramHash(planned[0].train()), ProgramHash(packed.train()));

  // Two stages: one fits packed within a limit that the other does not. It stays as it is, and nothing fails.
  config.mesh.pp = 2;
  config.machine.nprocs = 2;
  const auto stage = [&](int rank, bool packs) {
    return Must(CompileWithin({.each = {GiB(8)}, .ranks_per_machine = 2, .packs = packs}, *model, config, 2, rank));
  };
  const Bytes first = stage(0, true).train().arena_bytes, second_stage = stage(1, true).train().arena_bytes;
  ASSERT_NE(first, second_stage);
  config.memory.device = std::min(first, second_stage);
  for (const int rank : {0, 1}) {
    const Bytes arena = stage(rank, false).train().arena_bytes;
    ASSERT_LE(arena, *config.memory.device) << "the test's sizes";
    EXPECT_EQ(stage(rank, true).train().arena_bytes, arena);
  }
}

// Full fine-tuning packs its weights once per step where that fits, else what each micro-batch reads several times.
TEST(CompiledRun, PacksWhatAFullRunReadsSeveralTimesAsFarAsItFits) {
  const auto model = LlamaOf(4096, 512, 2, 8, 1024);
  RunConfig config = ConfigOf(TrainMethod::kFull, 2048, [](RunConfig& c) { c.batch.gradient_accumulation_steps = 3; });
  const auto compile = [&](bool packs) {
    return Must(CompileWithin({.each = {GiB(8)}, .ranks_per_machine = 1, .packs = packs}, *model, config));
  };
  const auto packs_operands = [](const CompiledRun& run) {
    for (const Segment& segment : run.train().segments) {
      for (const Instruction& i : segment.instructions) {
        if (i.op == Op::kCast && i.attributes.Has("layout")) return true;
      }
    }
    return false;
  };
  const CompiledRun plain = compile(false), all = compile(true);
  EXPECT_FALSE(packs_operands(plain));
  EXPECT_TRUE(packs_operands(all));
  constexpr int64_t kMatrices = 2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512) + 4096 * 512;
  const int64_t copies = 2 * 2 * kMatrices;  // two layouts of 2 bytes
  ASSERT_TRUE(all.packed);
  EXPECT_GE(all.packed->v, copies);
  EXPECT_LE(all.packed->v, copies + copies / 200) << "a line beside each panel";
  EXPECT_NE(all.MemoryText().find("weights are packed for products once per step"), std::string::npos);
  EXPECT_EQ(all.hashes_without_limits, HashesOf(plain.programs)) << "they resume each other";

  // Casts count as the run that stores its weights, packed or not.
  config.memory.bf16_weights = TrainedMatrices::kCast;
  const CompiledRun cast = compile(true);
  EXPECT_TRUE(packs_operands(cast));
  EXPECT_EQ(cast.hashes_without_limits, HashesOf(plain.programs));
  EXPECT_EQ(compile(false).hashes_without_limits, HashesOf(plain.programs));
  config.memory.bf16_weights = TrainedMatrices::kAuto;

  config.memory.device = Bytes{all.train().arena_bytes.v - 1};
  const CompiledRun some = compile(true);
  EXPECT_TRUE(packs_operands(some));
  EXPECT_EQ(some.packed, std::nullopt) << "no weights stay packed";
  EXPECT_EQ(some.hashes_without_limits, HashesOf(plain.programs));
  EXPECT_LE(some.train().arena_bytes, *config.memory.device);

  config.memory.device = plain.train().arena_bytes;
  const CompiledRun none = compile(true);
  EXPECT_LE(none.train().arena_bytes, *config.memory.device);
}

class LimitedRun : public testing::Test {
 protected:
  LimitedRun() {
    model_ = LlamaOf(2048, 512, 6, 8, 1024);
    config_ = ConfigOf(TrainMethod::kFull, 64, [](RunConfig& c) { c.batch.gradient_accumulation_steps = 2; });
  }

  // What is asked while the run is compiled, and the result with these rates.
  Result<CompiledRun> Compile(Bytes available, const std::optional<RunRates>& rates) {
    asked_.clear();
    return CompileWithin({.each = {available}, .ranks_per_machine = 1}, *model_, config_, 1, 0, {},
                         [&](const Result<bool>& needed) -> Result<std::optional<RunRates>> {
                           asked_.push_back(!needed.ok() ? "failed" : *needed ? "needed" : "not needed");
                           if (!needed.ok()) return needed.status();
                           return *needed ? rates : std::nullopt;
                         });
  }
  // As on this kind of device, with copies of that speed.
  RunRates Copying(double bytes_per_second) const {
    RunRates rates = RatesIn(MemorySpecOf(config_));
    rates.links.host_to_device = rates.links.device_to_host = bytes_per_second;
    rates.source = "a test";
    return rates;
  }

  std::unique_ptr<Model> model_;
  RunConfig config_;
  std::vector<std::string> asked_;
};

TEST_F(LimitedRun, AsksForRatesOnceAndOnlyIfItsChoicesDependOnThem) {
  const CompiledRun whole = Must(Compile(GiB(8), Copying(1e9)));
  EXPECT_EQ(asked_, std::vector<std::string>{"not needed"});
  EXPECT_EQ(whole.rates, "");
  const Bytes all = whole.train().arena_bytes;

  config_.memory.device = all;  // a limit that it keeps anyway
  const CompiledRun within = Must(Compile(GiB(8), Copying(1e9)));
  EXPECT_EQ(asked_, std::vector<std::string>{"not needed"});
  EXPECT_EQ(ProgramHash(within.train()), ProgramHash(whole.train()));

  config_.memory.device = all / 2;
  EXPECT_EQ(Must(Compile(GiB(8), Copying(1e9))).rates, "a test");
  EXPECT_EQ(asked_, std::vector<std::string>{"needed"});
  EXPECT_EQ(Must(Compile(GiB(8), std::nullopt)).rates, "typical");

  config_.memory.device.reset();
  EXPECT_EQ(Must(Compile(MiB(160) + all * 3 / 4, Copying(1e9))).rates, "a test") << "the machine's limit";
  EXPECT_EQ(asked_, std::vector<std::string>{"needed"});

  config_.mesh.tp = 3;  // does not divide its heads
  EXPECT_FALSE(Compile(GiB(8), Copying(1e9)).ok());
  EXPECT_EQ(asked_, std::vector<std::string>{"failed"}) << "other ranks wait at the same place";
}

TEST_F(LimitedRun, CountsAsTheSameRunWhereItsWeightsAreCast) {
  const CompiledRun stored = Must(Compile(GiB(8), std::nullopt));
  config_.memory.bf16_weights = TrainedMatrices::kCast;
  const CompiledRun cast = Must(Compile(GiB(8), std::nullopt));
  EXPECT_EQ(cast.hashes_without_limits, HashesOf(stored.programs));
  EXPECT_NE(ProgramHash(cast.train()), ProgramHash(stored.train()));
  EXPECT_EQ(cast.memory.choice.ToString(), "none, bf16 weights cast");

  config_.memory.bf16_weights = TrainedMatrices::kAuto;
  config_.memory.device = cast.train().arena_bytes;
  EXPECT_TRUE(Must(Compile(GiB(8), Copying(1e8))).memory.choice.casts) << "moves are slower";
}

TEST_F(LimitedRun, RefusesToCastWhatIsNotTrainedInBf16OrNotOnTheDevice) {
  config_.memory.bf16_weights = TrainedMatrices::kCast;
  const auto refused = [&](const char* word) {
    const Status status = Compile(GiB(8), std::nullopt).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  config_.memory.optimizer = TierChoice::kHost;
  refused("memory.optimizer");
  config_.memory.optimizer = TierChoice::kAuto;
  config_.model.dtype = ComputeType::kF32;
  refused("dtype: bf16");
  config_.model.dtype = ComputeType::kBf16;
  config_.model.method = TrainMethod::kLora;
  refused("method: full");
}

// Updates of large matrices go between disk and memory in parts, and of each matrix of two blocks the last part may
// still be on its way. Counts what the search does: a model of 8 or 405 billion parameters takes about as much.
TEST(CompiledRun, FullFineTuningFromTheDiskFitsAndIsFoundWithinTheWorkOfASearch) {
  const auto model = LlamaOf(8192, 4096, 4, 32, 12288);
  const RunConfig config = ConfigOf(TrainMethod::kFull, 256, [](RunConfig& c) {
    c.batch.gradient_accumulation_steps = 2;
    c.machine.recompute = Recompute::kAuto;
  });
  const auto run = CompileWithin({.each = {GiB(4)}, .ranks_per_machine = 1}, *model, config);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_GT(run->train().disk.bytes, GiB(8));
  EXPECT_LE(run->train().arena_bytes + run->train().host.bytes, RoomForArenas(GiB(4)));
  EXPECT_GT(run->memory.work, 0);
  EXPECT_LT(2 * run->memory.work, 3 * SearchWork::kEnough);
}

}  // namespace
}  // namespace temper::compiled_run_test
