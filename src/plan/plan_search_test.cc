#include "plan/plan_search.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "config/command_line.h"
#include "config/run_options.h"
#include "format/json.h"
#include "model/families.h"
#include "plan/slow_devices_for_test.h"

// gcc 12 at -O1 believes that a Result<Cluster> on the stack is deleted.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"

namespace temper::plan_search_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

// Windows in three of four blocks: two kinds.
constexpr char kTwoKinds[] = R"({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 256, "hidden_size": 128,
  "num_hidden_layers": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256,
  "max_position_embeddings": 512, "use_sliding_window": true, "sliding_window": 16, "layer_types": [
  "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
  "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
  "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]})";

// Blocks that take keys and values of others, and vectors from before the blocks.
constexpr char kSkips[] = R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 256, "hidden_size": 128,
  "num_hidden_layers": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256, "head_dim": 32,
  "global_head_dim": 64, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 256,
  "num_kv_shared_layers": 8})";

// `config` with settings as a candidate states them, for the command line.
RunConfig With(RunConfig config, const std::string& settings) {
  std::vector<std::string> arguments;
  std::istringstream words(settings);
  for (std::string word; words >> word;) arguments.push_back(word);
  if (settings.starts_with("1 device")) arguments.erase(arguments.begin(), arguments.begin() + 2);
  const OptionSet options = RunOptions(config);
  const Status applied = ApplyCommandLine(Must(ReadCommandLine(arguments, options)), options);
  TEMPER_CHECK(applied.ok()) << applied.message();
  return config;
}

TEST(SearchPlans, AdaptersOfTheLastBlocksAloneAreFoundAPlan) {
  const auto model = Must(ModelFromConfig(Must(ParseJson(kTwoKinds, "c")), "c"));
  RunConfig config;
  config.lora.layers_to_transform = {10, 11};
  config.data.max_seq_len = 128;
  config = Must(Resolve(config, {.today = "2026-01-01"})).config;
  const Planner planner(*model, SlowDevices(2));
  const SearchResult result = Must(SearchPlans(planner, config, SearchGoal::kThroughput));
  ASSERT_FALSE(result.best.empty());
  for (const Candidate& c : result.best) {
    const PlannedRun whole = Must(planner.Plan(With(config, c.settings), c.devices));
    EXPECT_NEAR(c.step.v, whole.forecast.simulation.step.v, 0.01 * c.step.v) << c.settings;
  }
}

TEST(SearchPlans, ForecastsOfAModelWithTwoKindsOfBlocksAreThoseOfItsWholeSteps) {
  const auto model = Must(ModelFromConfig(Must(ParseJson(kTwoKinds, "c")), "c"));
  RunConfig config;
  config.model.method = TrainMethod::kFull;
  config.data.max_seq_len = 128;
  config.batch.gradient_accumulation_steps = 4;
  config = Must(Resolve(config, {.today = "2026-01-01"})).config;
  const Planner planner(*model, SlowDevices(2));
  const SearchResult result = Must(SearchPlans(planner, config, SearchGoal::kThroughput));
  int extrapolated = 0;
  for (const Candidate& c : result.best) {
    if (c.compiled) continue;
    SCOPED_TRACE(c.settings);
    ++extrapolated;
    const PlannedRun whole = Must(planner.Plan(With(config, c.settings), c.devices));
    EXPECT_NEAR(c.step.v, whole.forecast.simulation.step.v, 0.01 * c.step.v);
    EXPECT_NEAR(static_cast<double>(c.bytes.v), static_cast<double>(whole.forecast.bytes.v),
                0.01 * static_cast<double>(c.bytes.v));
    EXPECT_NEAR(c.mfu, whole.forecast.mfu, 0.01 * c.mfu);
  }
  EXPECT_GE(extrapolated, 3) << "of those shown";
}

// A search over four devices.
SearchResult OverFour(const char* text, int64_t rows) {
  const auto model = Must(ModelFromConfig(Must(ParseJson(text, "c")), "c"));
  RunConfig config;
  config.data.max_seq_len = 64;
  config.batch.per_device_train_batch_size = 1;
  config.batch.gradient_accumulation_steps = rows / 4;
  config = Must(Resolve(config, {.today = "2026-01-01"})).config;
  return Must(SearchPlans(Planner(*model, SlowDevices(4)), config, SearchGoal::kThroughput));
}

TEST(SearchPlans, StagesThatWouldHaveToCarryValuesPastAnotherAreNotConsidered) {
  std::string plain = kSkips;
  for (const auto& [key, without] : {std::pair("\"num_kv_shared_layers\": 8", "\"num_kv_shared_layers\": 0"),
                                     {"\"hidden_size_per_layer_input\": 8", "\"hidden_size_per_layer_input\": 0"}}) {
    plain.replace(plain.find(key), std::string(key).size(), without);
  }
  // Of four rows a pipeline of four stages takes one at a time, and recomputes nothing, what is cheap, or blocks.
  EXPECT_EQ(OverFour(kSkips, 4).considered + 3, OverFour(plain.c_str(), 4).considered);
}

TEST(SearchPlans, CandidatesWhoseKernelsAloneTakeLongerThanTheTenBestAreNotForecast) {
  const SearchResult result = OverFour(kSkips, 16);
  ASSERT_EQ(result.best.size(), 10);
  EXPECT_LT(result.considered - result.ruled_out, result.considered / 4);
}

}  // namespace
}  // namespace temper::plan_search_test
