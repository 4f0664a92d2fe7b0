// Reading the config.json of families without rotary embeddings and learned positions: with ALiBi or sinusoids. Beside
// them those of Apertus and Granite SWA, whose attention and activation learn numbers of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/alibi.h"
#include "model/families.h"
#include "model/model.h"

namespace temper::alibi_config_test {
namespace {

Json Config(const char* architecture) {
  Json json = Json::parse(R"({"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "ffn_dim": 96, "dff": 96})");
  json["architectures"] = {architecture};
  return json;
}
Json With(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}

std::unique_ptr<Model> Read(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

std::vector<Attributes> AttributesOf(const Model& model, Op op) {
  std::vector<Attributes> all;
  const Graph graph = model.Forward({.tokens = 8, .row = 8, .training = true});
  for (const Node& node : graph.nodes()) {
    if (node.op == op) all.push_back(node.attributes);
  }
  return all;
}

void ExpectRefused(const Json& config, const std::string& named) {
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_FALSE(model.ok()) << config;
  EXPECT_NE(model.status().message().find(named), std::string::npos) << model.status().message();
}

TEST(Alibi, SlopesHalveOverTheHeadsAndOthersStandBetweenThem) {
  EXPECT_EQ(AlibiSlopes(8),
            std::vector<double>({0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256}));
  EXPECT_EQ(AlibiSlopes(6), std::vector<double>({0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, 0.5, 0.125}));
  EXPECT_EQ(AlibiSlopes(1).size(), 1u);
}

// Slopes count before scores are scaled: BLOOM's and MPT's classes add them behind the scale, Falcon's before.
TEST(Alibi, SlopesAreThoseOfScoresWithoutTheirScale) {
  for (const char* architecture : {"BloomForCausalLM", "MptForCausalLM", "FalconForCausalLM"}) {
    const bool falcon = std::string(architecture) == "FalconForCausalLM";
    Json json = With(Config(architecture), "alibi", true);
    if (falcon) json["multi_query"] = false, json.erase("num_key_value_heads");
    const std::vector<Attributes> attention = AttributesOf(*Read(json), Op::kAttention);
    ASSERT_EQ(attention.size(), 4u) << architecture;
    for (size_t h = 0; h < 4; ++h) {
      EXPECT_DOUBLE_EQ(attention[0].Doubles("slopes")[h], AlibiSlopes(4)[h] * (falcon ? 1 : 4)) << architecture;
    }
    EXPECT_EQ(attention[0].Flag("rounded_slopes"), falcon) << architecture;
    EXPECT_TRUE(AttributesOf(*Read(json), Op::kRope).empty()) << architecture;
  }
}

TEST(Mpt, AttentionsOwnSettingsAreReadAndOthersAreTheClasss) {
  const Json json = Config("MptForCausalLM");
  const auto with = [&](const char* key, const Json& value) { return With(json, "attn_config", {{key, value}}); };
  EXPECT_TRUE(AttributesOf(*Read(json), Op::kClamp).empty());
  EXPECT_TRUE(AttributesOf(*Read(with("clip_qkv", nullptr)), Op::kClamp).empty());
  const std::vector<Attributes> clipped = AttributesOf(*Read(with("clip_qkv", 6.0)), Op::kClamp);
  ASSERT_EQ(clipped.size(), 4u * 3) << "q, k and v of each block";
  EXPECT_EQ(clipped[0].Double("limit"), 6);
  const Attributes scaled = AttributesOf(*Read(with("softmax_scale", 0.5)), Op::kAttention)[0];
  EXPECT_EQ(scaled.Double("scale"), 0.5);
  EXPECT_DOUBLE_EQ(scaled.Doubles("slopes")[0], 2 * AlibiSlopes(4)[0]);
  EXPECT_EQ(AttributesOf(*Read(with("attn_pdrop", 0.25)), Op::kDropout).size(), 4u * 2);
  EXPECT_EQ(Read(with("attn_pdrop", 0.25))->facts().training_notes.size(), 2u) << "of attention's weights it is not";
  ExpectRefused(with("clip_qkv", -1), "clip_qkv");
  ExpectRefused(with("softmax_scale", 0), "softmax_scale");
  ExpectRefused(With(json, "attn_config", 7), "attn_config");
}

TEST(Bloom, SumsMayGoOnFromNorms) {
  const Json json = Config("BloomForCausalLM");
  const auto text = [](const Json& config) { return PrintGraph(Read(config)->Forward({.tokens = 8, .row = 8})); };
  EXPECT_NE(text(json), text(With(json, "apply_residual_connection_post_layernorm", true)));
}

TEST(Sinusoids, StandWhereLearnedPositionsWould) {
  for (const char* architecture : {"XGLMForCausalLM", "CTRLLMHeadModel"}) {
    const std::vector<Attributes> tables = AttributesOf(*Read(Config(architecture)), Op::kRopeTable);
    ASSERT_EQ(tables.size(), 1u) << architecture;
    EXPECT_TRUE(tables[0].Flag("sines_first"));
    EXPECT_EQ(tables[0].Doubles("inv_freq").size(), 32u);
    EXPECT_NEAR(tables[0].Doubles("inv_freq")[31], architecture[0] == 'X' ? 1e-4 : std::pow(1e4, -62.0 / 64), 1e-10);
    EXPECT_EQ(tables[0].IntOr("shift", 0), architecture[0] == 'X' ? 2 : 0);
  }
  // CTRL's class has a table that ends; XGLM's grows.
  EXPECT_TRUE(Read(Config("CTRLLMHeadModel"))->facts().positions_are_learned);
  EXPECT_FALSE(Read(Config("XGLMForCausalLM"))->facts().positions_are_learned);
  ExpectRefused(With(Config("XGLMForCausalLM"), "add_cross_attention", true), "add_cross_attention");
}

TEST(Apertus, TrainsTheNumbersOfItsActivationAndLeavesItsConstants) {
  const auto model = Read(Config("ApertusForCausalLM"));
  int learned = 0, fixed = 0;
  for (const WeightDeclaration& w : model->weights()) {
    if (w.name.find("act_fn") == std::string::npos) continue;
    EXPECT_EQ(w.shape, Shape({1})) << w.name;
    (w.fixed ? fixed : learned) += 1;
    EXPECT_EQ(w.decays, !w.fixed) << w.name << ": transformers' Trainer decays what is no norm and no bias";
    EXPECT_EQ(w.source.tensors()[0].shape.rank(), w.fixed ? 0 : 1) << w.name << ", as files have it";
  }
  EXPECT_EQ(learned, 2 * 4);
  EXPECT_EQ(fixed, 2 * 4);
  EXPECT_EQ(AttributesOf(*Read(With(Config("ApertusForCausalLM"), "hidden_act", "relu2")), Op::kReluSquared).size(),
            4u);
}

TEST(Apertus15, TheHeadHasTheVocabularyAndTheEmbeddingMore) {
  const Json json =
      With(With(Config("Apertus1p5TextForCausalLM"), "output_vocab_size", 40), "tie_word_embeddings", false);
  const auto model = Read(json);
  EXPECT_EQ(model->facts().vocab, 40) << "tokens of data and prompts are of these";
  for (const WeightDeclaration& w : model->weights()) {
    if (w.name == "lm_head.weight") EXPECT_EQ(w.shape[0], 40);
    if (w.name == "model.embed_tokens.weight") EXPECT_EQ(w.shape[0], 100);
  }
  EXPECT_EQ(Read(With(json, "output_vocab_size", nullptr))->facts().vocab, 100);
  EXPECT_EQ(Read(With(json, "output_vocab_size", 100))->facts().vocab, 100);
  for (const int words : {0, 101}) ExpectRefused(With(json, "output_vocab_size", words), "output_vocab_size");
  ExpectRefused(With(json, "tie_word_embeddings", true), "tie_word_embeddings");
}

TEST(GraniteSwa, EachLayerHasItsThetaOrNone) {
  const Json json = With(Config("GraniteSWAForCausalLM"), "layer_rope_theta", {0, 1e4, 500.0, 1e4});
  const auto model = Read(json);
  EXPECT_EQ(AttributesOf(*model, Op::kRopeTable).size(), 2u) << "one of each theta";
  EXPECT_EQ(AttributesOf(*model, Op::kRope).size(), 3u * 2) << "q and k of three layers";
  const std::vector<Attributes> attention = AttributesOf(*model, Op::kAttention);
  for (size_t b = 0; b < 4; ++b) {
    EXPECT_EQ(attention[b].IntOr("window", 0), b == 0 ? 0 : 128) << b;
    EXPECT_TRUE(attention[b].Flag("sink")) << b;
  }
  for (const WeightDeclaration& w : model->weights()) {
    if (!w.name.ends_with(".sinks")) continue;
    EXPECT_TRUE(w.init == WeightDeclaration::Init::kValue && w.value == 0) << w.name << ", from scratch";
    EXPECT_TRUE(w.decays) << w.name;
  }
  ExpectRefused(With(json, "layer_rope_theta", {1e4}), "layer_rope_theta");
  ExpectRefused(With(json, "layer_rope_theta", {1e4, -1, 1e4, 1e4}), "layer_rope_theta");
}

// The last block's attention alone has a bias, which files call otherwise.
TEST(GptNeoXJapanese, HasOneBias) {
  const auto model = Read(Config("GPTNeoXJapaneseForCausalLM"));
  std::vector<std::string> biases;
  for (const WeightDeclaration& w : model->weights()) {
    const FileTensor& tensor = w.source.tensors()[0];
    if (tensor.name.ends_with("dense_bias")) biases.push_back(tensor.name);
    EXPECT_TRUE(!w.name.ends_with("dense.bias") || tensor.name.ends_with("dense_bias")) << tensor.name;
  }
  EXPECT_EQ(biases, std::vector<std::string>{"gpt_neox_japanese.layers.3.attention.dense_bias"});
}

}  // namespace
}  // namespace temper::alibi_config_test
