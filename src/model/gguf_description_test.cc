// How families describe themselves for llama.cpp. What llama.cpp computes is compared by
// tests/parity/gguf/check_gguf.py.
#include "model/gguf_description.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/families.h"

namespace temper::gguf_description_test {
namespace {

Json Llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-3, "tie_word_embeddings": true})");
}

Result<GgufModel> Describe(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  if (!model.ok()) return model.status();
  return (*model)->Gguf();
}

std::map<std::string, GgufTensor> ByName(const GgufModel& model) {
  std::map<std::string, GgufTensor> tensors;
  for (const GgufTensor& tensor : model.tensors) tensors[tensor.name] = tensor;
  return tensors;
}

TEST(Gguf, LlamaIsNamedAndMeasuredAsLlamaCppReadsIt) {
  const auto model = Describe(Llama());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->architecture, "llama");
  EXPECT_EQ(std::get<uint32_t>(*model->metadata.Find("llama.attention.head_count_kv")), 2U);
  EXPECT_EQ(std::get<uint32_t>(*model->metadata.Find("llama.rope.dimension_count")), 8U);
  EXPECT_FLOAT_EQ(std::get<float>(*model->metadata.Find("llama.attention.layer_norm_rms_epsilon")), 1e-3f);
  auto tensors = ByName(*model);
  EXPECT_FALSE(tensors.contains("output.weight"));  // tied
  EXPECT_EQ(tensors.size(), 2U + 2 * 9);
  const GgufTensor& q = tensors.at("blk.1.attn_q.weight");
  EXPECT_EQ(q.dims(), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(q.order.head, 8);
  EXPECT_EQ(q.order.rotary, 8);
  EXPECT_EQ(q.parts.at(0).source.tensors().at(0).name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(tensors.at("blk.1.attn_v.weight").order.head, 0);
}

TEST(Gguf, ScalingOfLlama3IsATensorOfFactors) {
  Json config = Llama();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 128}};
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok());
  const std::vector<float> factors = ByName(*model).at("rope_freqs.weight").numbers;
  ASSERT_EQ(factors.size(), 4U);
  EXPECT_FLOAT_EQ(factors[0], 1);
  EXPECT_FLOAT_EQ(factors[3], 8);
}

TEST(Gguf, NormsThatScaleByOnePlusTheWeightAreWrittenWithTheOne) {
  Json config = Llama();
  config["architectures"] = {"GemmaForCausalLM"};
  config["head_dim"] = 8;
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(ByName(*model).at("blk.0.attn_norm.weight").added, 1);
  EXPECT_EQ(ByName(*model).at("blk.0.attn_q.weight").added, 0);
}

TEST(Gguf, FusedProjectionsAreCutWhereTheArchitectureHasThemApart) {
  Json config = Llama();
  config["architectures"] = {"Phi3ForCausalLM"};
  config["pad_token_id"] = 0;
  const auto phi = Describe(config);
  ASSERT_TRUE(phi.ok()) << phi.status().message();
  EXPECT_EQ(ByName(*phi).at("blk.0.attn_qkv.weight").parts.size(), 3U);
  EXPECT_EQ(ByName(*phi).at("blk.0.ffn_up.weight").dims(), (std::vector<int64_t>{96, 32}));
}

TEST(Gguf, WhatLlamaCppDoesNotComputeIsRefusedByName) {
  const auto message = [](const Json& config) {
    const auto model = Describe(config);
    EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
    return model.ok() ? "" : model.status().message();
  };
  Json config = Llama();
  config["hidden_act"] = "gelu";
  EXPECT_NE(message(config).find("architecture llama does not compute: the activation of the MLP"), std::string::npos);
  config = Llama();
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_NE(message(config).find("dynamic rotary scaling"), std::string::npos);
  config = Json::parse(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 64, "hidden_size": 32, "ffn_dim": 48,
    "word_embed_proj_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64})");
  EXPECT_NE(message(config).find("OPTForCausalLM has no GGUF form"), std::string::npos);
}

TEST(Gguf, AlibiIsThatOfTheArchitecture) {
  Json config = Json::parse(R"({"architectures": ["BloomForCausalLM"], "vocab_size": 64, "hidden_size": 48,
    "n_layer": 2, "n_head": 6})");
  const auto bloom = Describe(config);
  ASSERT_TRUE(bloom.ok()) << bloom.status().message();
  const auto tensors = ByName(*bloom);
  EXPECT_TRUE(tensors.contains("token_embd_norm.weight") && tensors.contains("token_embd_norm.bias"));
  EXPECT_EQ(tensors.at("blk.1.attn_qkv.weight").parts.size(), 3U) << "q, k and v one after the other";
  config["apply_residual_connection_post_layernorm"] = true;
  EXPECT_NE(Describe(config).status().message().find("sums that go on from norms"), std::string::npos);

  config = Json::parse(R"({"architectures": ["MptForCausalLM"], "vocab_size": 64, "d_model": 32, "n_layers": 2,
    "n_heads": 4, "attn_config": {"clip_qkv": 6}})");
  const auto mpt = Describe(config);
  ASSERT_TRUE(mpt.ok()) << mpt.status().message();
  EXPECT_EQ(std::get<float>(*mpt->metadata.Find("mpt.attention.max_alibi_bias")), 8);
  EXPECT_EQ(std::get<float>(*mpt->metadata.Find("mpt.attention.clamp_kqv")), 6);
  config["attn_config"]["softmax_scale"] = 0.3;
  EXPECT_NE(Describe(config).status().message().find("the scale of scores"), std::string::npos);

  config = Json::parse(R"({"architectures": ["FalconForCausalLM"], "vocab_size": 64, "hidden_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 4, "alibi": true, "multi_query": false, "parallel_attn": false})");
  EXPECT_NE(Describe(config).status().message().find("ALiBi"), std::string::npos) << "whose slopes are rounded";
}

TEST(Gguf, NumbersOfAnActivationAreKeysOfOneForEachBlock) {
  Json config = Llama();
  config["architectures"] = {"ApertusForCausalLM"};
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_EQ(model->numbers.size(), 4U);
  EXPECT_EQ(model->numbers[0].key, "xielu.alpha_p");
  ASSERT_EQ(model->numbers[2].parts.size(), 2U);
  EXPECT_EQ(model->numbers[2].parts[1].source.tensors().at(0).name, "model.layers.1.mlp.act_fn.beta");
  EXPECT_TRUE(ByName(*model).contains("output.weight")) << "which llama.cpp wants though the model ties it";
  config["architectures"] = {"Apertus1p5TextForCausalLM"};
  config["tie_word_embeddings"] = false;
  config["output_vocab_size"] = 40;
  EXPECT_NE(Describe(config).status().message().find("fewer words"), std::string::npos);
}

// Qwen 3.5: two heads of values for each of two of keys, in the GGUF file the first of both, then the second of both.
TEST(Gguf, HeadsOfValuesComeInTurnByKeyHead) {
  Json config = Llama();
  config["architectures"] = {"Qwen3_5ForCausalLM"};
  for (const auto& [key, n] : {std::pair{"head_dim", 8},
                               {"linear_num_key_heads", 2},
                               {"linear_num_value_heads", 4},
                               {"linear_key_head_dim", 8},
                               {"linear_value_head_dim", 8},
                               {"full_attention_interval", 2}}) {
    config[key] = n;
  }
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto first_rows = [](const std::vector<GgufRun>& runs) {
    std::vector<int64_t> rows;
    for (const GgufRun& run : runs) rows.push_back(run.first);
    return rows;
  };
  auto tensors = ByName(*model);
  const std::vector<int64_t> in_turn = {0, 16, 8, 24};
  EXPECT_EQ(first_rows(tensors.at("blk.0.attn_gate.weight").rows), in_turn);
  EXPECT_EQ(first_rows(tensors.at("blk.0.ssm_out.weight").columns), in_turn);
  EXPECT_EQ(first_rows(tensors.at("blk.0.ssm_a").rows), (std::vector<int64_t>{0, 2, 1, 3}));
  EXPECT_EQ(tensors.at("blk.0.attn_qkv.weight").rows.front().count, 2 * 2 * 8);  // q and k stay
  EXPECT_EQ(std::get<uint32_t>(*model->metadata.Find("qwen35.full_attention_interval")), 2U);
  config["linear_value_head_dim"] = 16;
  EXPECT_NE(Describe(config).status().message().find("keys and values differ in width"), std::string::npos);
}

TEST(Gguf, LayersWithoutAttentionHaveNoHeadsOfKeys) {
  Json config = Llama();
  config["architectures"] = {"Lfm2ForCausalLM"};
  config["layer_types"] = {"conv", "full_attention"};
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(std::get<std::vector<int32_t>>(*model->metadata.Find("lfm2.attention.head_count_kv")),
            (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(ByName(*model).at("blk.0.shortconv.conv.weight").dims(), (std::vector<int64_t>{32, 3}));
}

TEST(Gguf, AWindowThatLlamaCppLeavesOutIsSaid) {
  Json config = Llama();
  config["architectures"] = {"MistralForCausalLM"};
  config["sliding_window"] = 100;
  const auto model = Describe(config);
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->notices.size(), 1U);
  EXPECT_NE(model->notices[0].find("from token 101 on"), std::string::npos);
}

}  // namespace
}  // namespace temper::gguf_description_test
