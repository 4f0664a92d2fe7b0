#include "format/lora_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "format/json.h"

namespace temper::lora_config_test {
namespace {

Result<LoraConfig> Read(const std::string& text) {
  const ScratchFolder folder;
  const std::string path = folder / kAdapterConfigFile;
  TEMPER_CHECK(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  return ReadLoraConfig(PosixEnv(), path);
}

// Some of what PEFT 0.21 writes, with one setting changed.
Result<LoraConfig> With(const std::string& key, const Json& value) {
  Json json = Json::parse(R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "r": 4,
      "lora_alpha": 12, "bias": "none", "target_modules": ["q_proj", "v_proj"], "init_lora_weights": true,
      "modules_to_save": null, "alora_invocation_tokens": null, "layers_to_transform": null, "loftq_config": {},
      "use_dora": false})");
  json[key] = value;
  return Read(json.dump());
}

TEST(LoraConfig, WhatIsLeftOutIsWhatPeftTakes) {
  const auto config = Read(R"({"target_modules": ["q_proj"]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->r, 8);
  EXPECT_EQ(config->alpha, 8);
  EXPECT_EQ(config->dropout, 0);
  EXPECT_FALSE(config->use_rslora);
}

TEST(LoraConfig, HowAdaptersBeginThatLeaveTheirBaseAloneDoesNotMatter) {
  for (const Json& how : {Json(true), Json(false), Json("gaussian"), Json("eva"), Json("orthogonal")}) {
    const auto config = With("init_lora_weights", how);
    EXPECT_TRUE(config.ok()) << config.status().message();
  }
}

// Each computes something else of the same A and B, or of other tensors.
TEST(LoraConfig, WhatComputesOtherwiseIsRefusedByItsNameWithARemedy) {
  const std::vector<std::pair<const char*, const char*>> flags = {
      {"lora_bias", "true"}, {"layer_replication", "[[0, 4]]"}, {"alora_invocation_tokens", "[1, 2]"}};
  const std::vector<std::pair<const char*, const char*>> words = {
      {"peft_type", "PROMPT_TUNING"},          {"bias", "lora_only"},          {"init_lora_weights", "pissa"},
      {"init_lora_weights", "pissa_niter_16"}, {"init_lora_weights", "OLoRA"}, {"init_lora_weights", "corda"},
      {"init_lora_weights", "loftq"}};
  const auto refused = [](const Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << what << ": " << status.message();
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("is not supported. If PEFT can merge"), std::string::npos) << status.message();
  };
  for (const auto& [key, value] : flags) refused(With(key, Json::parse(value)).status(), key);
  for (const auto& [key, value] : words) refused(With(key, value).status(), value);
}

TEST(LoraConfig, ComesBackAsItWasWritten) {
  const LoraConfig written = {.r = 3,
                              .alpha = 6.5,
                              .dropout = 0.1,
                              .target_modules = ".*q_proj",
                              .target_parameters = std::vector<std::string>{"experts.down_proj", "gate.weight"},
                              .exclude_modules = std::vector<std::string>{"lm_head"},
                              .layers_to_transform = {2, 0},
                              .layers_pattern = "layers",
                              .use_rslora = true,
                              .use_dora = true,
                              .rank_pattern = {{"q_proj", 5}},
                              .alpha_pattern = {{"q_proj", 7}},
                              .modules_to_save = std::vector<std::string>{"norm", "embed_tokens"},
                              .ensure_weight_tying = true,
                              .trainable_token_indices = {{"lm_head", {7, 3}}, {"embed_tokens", {9}}},
                              .base_model = "models/base"};
  const auto read = Read(FormatLoraConfig(written));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, written);
}

TEST(LoraConfig, FilesWithoutModulesInFullAreAsTheyWere) {
  const Json none = Json::parse(FormatLoraConfig({.target_modules = std::vector<std::string>{"q_proj"}}));
  EXPECT_TRUE(none.at("modules_to_save").is_null());
  EXPECT_FALSE(none.contains("ensure_weight_tying"));
}

TEST(LoraConfig, RowsToTrainAreAListOrAMapAsInPeft) {
  using Rows = LoraConfig::TokenIndices;
  const char* const key = "trainable_token_indices";
  EXPECT_EQ(With(key, {5, 2})->trainable_token_indices, (Rows{{"", {5, 2}}}));
  EXPECT_EQ(With(key, Json::parse(R"({"embed_tokens": [1]})"))->trainable_token_indices, (Rows{{"embed_tokens", {1}}}));
  EXPECT_EQ(With(key, nullptr)->trainable_token_indices, Rows());
  for (const char* bad : {"3", "[-1]", "[1.5]", "[\"a\"]", "[4294967296]", "{\"embed_tokens\": 1}", "{\"\": [1]}"}) {
    EXPECT_EQ(With(key, Json::parse(bad)).status().code(), StatusCode::kCorrupt) << bad;
  }
  LoraConfig written = {.target_modules = std::vector<std::string>{"q_proj"}};
  EXPECT_FALSE(Json::parse(FormatLoraConfig(written)).contains(key));
  written.trainable_token_indices = {{"", {5, 2}}};
  EXPECT_EQ(Json::parse(FormatLoraConfig(written)).at(key), Json({5, 2}));
}

TEST(LoraConfig, LayersAreANumberOrAListAsInPeft) {
  using Layers = std::vector<int64_t>;
  using Names = std::vector<std::string>;
  EXPECT_EQ(With("layers_to_transform", 3)->layers_to_transform, Layers{3});
  EXPECT_EQ(With("layers_to_transform", {0, 2})->layers_to_transform, (Layers{0, 2}));
  EXPECT_EQ(With("layers_to_transform", nullptr)->layers_to_transform, Layers());
  EXPECT_EQ(With("layers_to_transform", "all").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(With("layers_to_transform", {"0"}).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(With("layers_to_transform", Layers(65537, 0)).status().code(), StatusCode::kCorrupt);
  for (const Json& layer : {Json(-1), Json(int64_t{1} << 40), Json(uint64_t{18446744073709551615u})}) {
    EXPECT_EQ(With("layers_to_transform", layer).status().code(), StatusCode::kCorrupt) << layer;
  }
  EXPECT_EQ(With("layers_pattern", std::vector<std::string>(65, "h")).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(With("layers_pattern", "h")->layers_patterns(), Names{"h"});
  EXPECT_EQ(With("layers_pattern", {"h", "layers"})->layers_patterns(), (Names{"h", "layers"}));
  EXPECT_EQ(With("layers_pattern", nullptr)->layers_patterns(), Names());
  const Json none = Json::parse(FormatLoraConfig({.target_modules = Names{"q_proj"}}));
  EXPECT_TRUE(none.at("layers_to_transform").is_null() && none.at("layers_pattern").is_null());
}

// PEFT 0.21 takes the first pattern that matches (get_pattern_key), in the order of the file.
TEST(LoraConfig, PatternsKeepTheUsersOrderWrittenAndRead) {
  const LoraConfig written = {.target_modules = std::vector<std::string>{"q_proj"},
                              .rank_pattern = {{"self_attn.q_proj", 6}, {"q_proj", 2}, {"layers.1.*", 4}, {"a", 3}},
                              .alpha_pattern = {{"z", 64}, {"self_attn.q_proj", 1.5}, {"q_proj", 2}}};
  const std::string text = FormatLoraConfig(written);
  const auto read = Read(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->rank_pattern, written.rank_pattern) << text;
  EXPECT_EQ(read->alpha_pattern, written.alpha_pattern) << text;
  const auto others = Read(R"({"target_modules": ["q_proj"], "alpha_pattern": {"self_attn.q_proj": 64, "q_proj": 2}})");
  ASSERT_TRUE(others.ok()) << others.status().message();
  EXPECT_EQ(others->alpha_pattern.front().first, "self_attn.q_proj");
}

TEST(LoraConfig, KeysThatPeftDoesNotKnowAreNamedAndNoOthers) {
  const auto unknown = [](const Json& json) {
    const ScratchFolder folder;
    const std::string path = folder / kAdapterConfigFile;
    TEMPER_CHECK(WriteTextFileAtomically(PosixEnv(), path, json.dump()).ok());
    return *UnknownLoraKeys(PosixEnv(), path);
  };
  // Those of PEFT's class, and those of its bases.
  Json known = {{"auto_mapping", 0},   {"base_model_name_or_path", 0},
                {"inference_mode", 0}, {"peft_type", 0},
                {"peft_version", 0},   {"revision", 0},
                {"task_type", 0}};
  const auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  std::istringstream names((*tools)["PEFT"]["names"].get<std::string>());
  for (std::string name; names >> name;) known[name] = 0;
  EXPECT_EQ(unknown(known), std::vector<std::string>());
  EXPECT_EQ(unknown(Json::parse(FormatLoraConfig({}))), std::vector<std::string>());
  known["use_newra"] = true;
  known["R"] = 4;
  EXPECT_EQ(unknown(known), (std::vector<std::string>{"R", "use_newra"}));
}

TEST(LoraConfig, TargetsAreAllLinearModulesOrARegexOrNames) {
  const auto all = With("target_modules", "all-linear"), regex = With("target_modules", "q_proj"), names = With("r", 4);
  ASSERT_TRUE(all.ok() && regex.ok() && names.ok());
  EXPECT_TRUE(all->all_linear());
  EXPECT_EQ(all->target_regex(), "");
  EXPECT_EQ(regex->target_regex(), "q_proj");
  EXPECT_FALSE(regex->all_linear());
  EXPECT_EQ(names->target_names(), (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(names->target_regex(), "");
  EXPECT_FALSE(names->all_linear());
  EXPECT_EQ(*With("exclude_modules", ""), *names) << "excludes nothing";
  for (const Json& nothing : {Json(""), Json::array(), Json(nullptr)}) {
    EXPECT_EQ(With("target_modules", nothing).status().code(), StatusCode::kCorrupt);
  }
}

}  // namespace
}  // namespace temper::lora_config_test
