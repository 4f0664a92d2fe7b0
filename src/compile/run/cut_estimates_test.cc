#include "compile/run/cut_estimates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "compile/run/few_blocks.h"
#include "model/families.h"
#include "model/known_models.h"

namespace temper::cut_estimates_test {
namespace {

std::unique_ptr<Model> Llama8b() {
  auto model = ModelFromConfig(*FindKnownModel("llama-3.1-8b"), "llama-3.1-8b");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

RunConfig LoraRun(int64_t rows_of_step) {
  RunConfig config;
  config.model.model = "config.json";
  config.batch.auto_cut = true;
  config.batch.gradient_accumulation_steps = rows_of_step;
  const auto run =
      Resolve(config, {.has_bf16 = true, .cpu_cores = 2, .today = "2026-01-01", .model_max_seq_len = 2048});
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run->config;
}
RunConfig Cut(RunConfig config, int64_t rows) {
  ApplyCut({.rows = rows, .micro_batches = config.batch.gradient_accumulation_steps / rows}, &config);
  return config;
}

// What extrapolating asks for: models of few blocks, of no more micro-batches than it takes.
struct Asked {
  std::vector<size_t> blocks;
  std::vector<Recompute> modes;
  int rates = 0;

  // Steps of 1 byte per block and row (half of it when recomputed), `second` seconds per block.
  QuickCut With(Bytes room) {
    return {.step = [this, room](const Model& model, const RunConfig& run,
                                 int64_t micro_batches) -> std::optional<RoomyStep> {
              EXPECT_LE(run.batch.gradient_accumulation_steps, kFewMicroBatches);
              EXPECT_EQ(run.memory.policy, TierPolicy::kDevice);
              const auto in_model = static_cast<double>(model.facts().kinds.size());
              blocks.push_back(model.facts().kinds.size());
              modes.push_back(run.machine.recompute);
              const bool recomputed = run.machine.recompute == Recompute::kBlock;
              const double rows = static_cast<double>(run.batch.per_device_train_batch_size);
              return RoomyStep{{.bytes = in_model * rows * (recomputed ? 1 : 2),
                                .seconds = in_model * rows * static_cast<double>(micro_batches) * (recomputed ? 4 : 3)},
                               room};
            },
            .spill = [](const StepFigures&, Bytes excess, int64_t micro_batches) -> std::optional<Seconds> {
              return Seconds{100.0 * static_cast<double>(excess.v * micro_batches)};
            },
            .rates = [this](bool) -> Result<bool> {
              ++rates;
              return false;
            }};
  }
};

// Of the first so many blocks each kind is there before a block of another kind takes values from it.
TEST(CutEstimates, FewBlocksOfAModelThatSharesKeysBetweenBlocksAreAModel) {
  const Json config = Json::parse(R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 80, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 16,
    "global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 100,
    "num_kv_shared_layers": 30})");
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const int64_t between : {int64_t{1}, kBetweenCollectives}) {
    const FewBlocks few(**model, between);
    ASSERT_TRUE(few.any());
    size_t least = SIZE_MAX, most = 0;
    int compiled = 0;
    const auto lines = few.Follow([&](const Model& some) -> std::optional<StepFigures> {
      const size_t blocks = some.facts().kinds.size();
      ++compiled;
      EXPECT_GT(some.Forward({.tokens = 8, .row = 8}).nodes().size(), blocks);
      least = std::min(least, blocks);
      most = std::max(most, blocks);
      return StepFigures{.bytes = static_cast<double>(blocks)};
    });
    ASSERT_TRUE(lines);
    EXPECT_LT(least, most);
    EXPECT_NEAR(few.Of(*lines, 80).bytes, 80, 1e-6);
    EXPECT_NEAR(few.Of(*lines, 40).bytes, 40, 1e-6) << "of a stage";
    // Six kinds, of which those that give their keys and values have one block.
    EXPECT_EQ(few.one_of_each().facts().kinds.size(), 6);
    EXPECT_EQ(compiled, 1 + 4);
    double all = 0, half = 0;
    for (size_t kind = 0; kind < 6; ++kind) {
      all += few.CountOf(kind, 80);
      half += few.CountOf(kind, 40);
    }
    EXPECT_NEAR(all, 80, 1e-6);
    EXPECT_NEAR(half, 40, 1e-6);
  }
}

TEST(CutEstimates, OfLargeModelsFollowFromFewBlocks) {
  const auto model = Llama8b();
  const RunConfig config = LoraRun(8);
  Asked asked;
  const EstimateCut estimate = CutOfFewBlocks(*model, config, /*ranks=*/1, asked.With({1000}));
  ASSERT_TRUE(estimate);
  const auto cut = estimate(Cut(config, 2));
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_TRUE(cut->fits && !cut->spills);
  EXPECT_EQ(cut->step.v, 32 * 8 * 3) << "all 32 blocks, all 8 rows";
  for (const size_t blocks : asked.blocks) EXPECT_LT(blocks, 8u);
  EXPECT_EQ(asked.modes.back(), Recompute::kNone) << "what fits is not recomputed";
}

TEST(CutEstimates, RecomputeBeforeTheySpill) {
  const auto model = Llama8b();
  const RunConfig config = LoraRun(8);
  Asked asked;
  const EstimateCut estimate = CutOfFewBlocks(*model, config, /*ranks=*/1, asked.With({32}));
  const auto one = estimate(Cut(config, 1)), two = estimate(Cut(config, 2));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_FALSE(one->spills);
  EXPECT_EQ(one->step.v, 32 * 8 * 4);
  EXPECT_TRUE(two->spills);
  EXPECT_EQ(two->step.v, 100 * 32 * 4) << "the moves, which take longer than the kernels beside them";
  EXPECT_EQ(asked.rates, 1) << "rates are asked for once";
}

TEST(CutEstimates, ThatMayNotSpillDoNotFit) {
  const auto model = Llama8b();
  RunConfig config = LoraRun(8);
  config.memory.policy = TierPolicy::kDevice;
  Asked asked;
  const EstimateCut estimate = CutOfFewBlocks(*model, config, /*ranks=*/1, asked.With({32}));
  EXPECT_EQ(estimate(Cut(config, 2)).status().code(), StatusCode::kOutOfMemory);
}

TEST(CutEstimates, OfRunsThatNameBlocksOrStagesDoNotFollowFromFew) {
  const auto model = Llama8b();
  Asked asked;
  const auto of = [&](const RunConfig& config) { return CutOfFewBlocks(*model, config, 1, asked.With({32})); };
  RunConfig stages = LoraRun(8), tiers = LoraRun(8), blocks = LoraRun(8);
  stages.mesh.pp = 2;
  tiers.memory.weights = TierChoice::kHost;
  blocks.machine.recompute_blocks = 3;
  EXPECT_FALSE(of(stages));
  EXPECT_FALSE(of(tiers));
  EXPECT_FALSE(of(blocks));
}

// On 16 GiB the base, 15 GiB, is read from the disk, beside kernels that take longer: larger micro-batches gain
// nothing.
TEST(CutEstimates, OnAMachineAreThoseOfTheWholeRun) {
  const auto model = Llama8b();
  const RunConfig config = LoraRun(8);
  const RankMemory available{.each = {GiB(16)}, .ranks_per_machine = 1};
  const AskRates typical = nullptr;
  const CutEstimates estimates = CutOnMachine(available, *model, config, /*ranks=*/1, typical);
  ASSERT_TRUE(estimates.quick);
  const auto quick = estimates.quick(Cut(config, 1)), whole = estimates.whole(Cut(config, 1));
  ASSERT_TRUE(quick.ok() && whole.ok());
  EXPECT_TRUE(quick->spills && whole->spills);
  EXPECT_NEAR(quick->step.v, whole->step.v, 0.1 * whole->step.v);
  EXPECT_EQ(ChooseBatchCut(config, estimates)->ToString(), "8 micro-batches of 1 row");
}

}  // namespace
}  // namespace temper::cut_estimates_test
