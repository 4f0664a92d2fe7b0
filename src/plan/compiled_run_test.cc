#include "plan/compiled_run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "program/program.h"

namespace temper {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

// A pipeline whose stages differ in what they need, in memory that has room for both, for one, for neither.
TEST(CompiledRun, StagesCompiledTogetherAreThoseThatTheirRanksCompile) {
  const Json json = Must(ParseJson(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 512,
      "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1024,
      "max_position_embeddings": 256, "tie_word_embeddings": false})",
                                   "config.json"));
  const auto model = Must(Model::FromConfig(json, "config.json"));
  RunConfig config;
  config.model.model = "config.json";
  config.model.method = TrainMethod::kFull;
  config.data.max_seq_len = 64;
  config.batch.gradient_accumulation_steps = 4;
  config.mesh.pp = 2;
  config.mesh.fsdp = 2;
  config = Must(Resolve(config, {.has_bf16 = true, .today = "2026-01-01"})).config;
  constexpr int kRanks = 4;
  const auto of_rank = [&](int rank) { return CompileRun(*model, config, kRanks, rank); };
  const std::vector<CompiledRun> open = Must(CompileStages(kRanks, of_rank));
  ASSERT_EQ(open.size(), 2u);
  const Bytes first = open[0].train().arena_bytes, second = open[1].train().arena_bytes;
  const Bytes least = std::min(first, second), both = first + second;
  ASSERT_NE(first, second);
  int limited = 0;
  for (const Bytes room : {both, both - least / 8, least * 7 / 4}) {  // of two ranks, one of each stage
    const Bytes beside = MiB(153) + room / 128;                       // RoomForArenas
    const RankMemory memory{.each = {beside + room / 2}, .ranks_per_machine = kRanks};
    const std::vector<CompiledRun> stages = Must(CompileStagesWithin(memory, *model, config, kRanks));
    ASSERT_EQ(stages.size(), 2u);
    for (int stage = 0; stage < 2; ++stage) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << ", " << ToString(room) << " for two ranks");
      const CompiledRun &run = stages[static_cast<size_t>(stage)],
                        own = Must(CompileWithin(memory, *model, config, kRanks, 2 * stage));
      EXPECT_EQ(PrintProgram(run.train()), PrintProgram(own.train()));
      EXPECT_EQ(run.limited_because, own.limited_because);
      EXPECT_EQ(run.hash_without_limits, own.hash_without_limits);
      limited += !run.limited_because.empty();
    }
  }
  EXPECT_EQ(limited, 3) << "one stage, then both";
}

}  // namespace
}  // namespace temper
