// Reading the config.json of families whose blocks differ: LFM2, LFM3, Qwen 3.5, Granite 4, Nemotron-H and Gemma 4.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/families.h"
#include "model/model.h"

namespace temper::hybrid_config_test {
namespace {

Json Lfm2Json() {
  return Json::parse(R"({"architectures": ["Lfm2ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "layer_types": ["conv", "full_attention", "conv"]})");
}
Json Qwen35Json() {
  return Json::parse(R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 8})");
}

Json Granite4Json() {
  return Json::parse(R"({"architectures": ["GraniteMoeHybridForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "shared_intermediate_size": 96,
    "num_local_experts": 0, "mamba_n_heads": 8, "layer_types": ["mamba", "attention", "mamba"]})");
}

Json FalconH1Json() {
  return Json::parse(R"({"architectures": ["FalconH1ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "mamba_d_ssm": 32, "mamba_n_heads": 4})");
}

Json NemotronHJson() {
  return Json::parse(R"({"architectures": ["NemotronHForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "mamba_num_heads": 8,
    "mamba_head_dim": 4, "n_groups": 2, "ssm_state_size": 8, "hybrid_override_pattern": "M-M*-"})");
}

Json Gemma4Json() {
  return Json::parse(R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 16,
    "global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 100,
    "num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention"]})");
}

// The error names the key, and the value where that is short.
void ExpectRefused(Json config, const std::string& key, const Json& value, StatusCode code) {
  config[key] = value;
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_FALSE(model.ok()) << key << " = " << value;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_NE(model.status().message().find(key), std::string::npos) << model.status().message();
  if (value.is_number()) {
    EXPECT_NE(model.status().message().find(value.dump()), std::string::npos) << model.status().message();
  }
}

std::unique_ptr<Model> Read(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

TEST(HybridConfig, BlocksOfDifferentMixersAreOfDifferentKinds) {
  EXPECT_EQ(Read(Lfm2Json())->facts().kinds, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(Read(Qwen35Json())->facts().kinds, (std::vector<int>{0, 0, 0, 3}));
  EXPECT_EQ(Read(Granite4Json())->facts().kinds, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(Read(NemotronHJson())->facts().kinds, (std::vector<int>{0, 1, 0, 3, 1}));
}

TEST(HybridConfig, NemotronHsLayersAreAPatternOrAList) {
  Json listed = NemotronHJson();
  listed.erase("hybrid_override_pattern");
  for (const char* key : {"layers_block_type", "layer_types"}) {
    Json json = listed;
    json[key] = {"mamba", "mlp", "linear_attention", "attention", "mlp"};
    json["num_hidden_layers"] = 52;  // the class passes over it
    EXPECT_EQ(Read(json)->facts().kinds, (std::vector<int>{0, 1, 0, 3, 1}));
  }
  ExpectRefused(NemotronHJson(), "hybrid_override_pattern", "M-X", StatusCode::kUnsupported);
  ExpectRefused(NemotronHJson(), "layers_block_type", {"mlp", "conv"}, StatusCode::kUnsupported);
  ExpectRefused(NemotronHJson(), "layers_block_type", "mlp", StatusCode::kCorrupt);
  for (const Json& with_experts : {Json{{"hybrid_override_pattern", "ME"}}, Json{{"layers_block_type", {"moe"}}}}) {
    Json json = listed;
    json.update(with_experts);
    const auto model = ModelFromConfig(json, "config.json");
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.status().message().find("has experts"), std::string::npos) << model.status().message();
  }
  EXPECT_FALSE(ModelFromConfig(listed, "config.json").ok());  // where a file says nothing, the class has experts
}

const Shape& ShapeOf(const Model& model, const std::string& name) {
  static const Shape none;
  for (const WeightDeclaration& w : model.weights()) {
    if (w.name == name) return w.shape;
  }
  ADD_FAILURE() << name;
  return none;
}
bool HasWeight(const Model& model, const std::string& name) {
  return std::any_of(model.weights().begin(), model.weights().end(), [&](const auto& w) { return w.name == name; });
}

TEST(HybridConfig, Gemma4sLastLayersTakeKeysAndValuesOfEarlierOnes) {
  const auto model = Read(Gemma4Json());
  EXPECT_EQ(model->facts().kinds, (std::vector<int>{0, 1, 2, 3, 4}));
  const std::string layer = "model.layers.";
  for (const int b : {0, 1, 2}) EXPECT_TRUE(HasWeight(*model, layer + std::to_string(b) + ".self_attn.k_proj.weight"));
  for (const int b : {3, 4}) EXPECT_FALSE(HasWeight(*model, layer + std::to_string(b) + ".self_attn.k_proj.weight"));
  // The last layer of each type that has keys and values is the one that gives them.
  const Graph graph = model->Forward({.dtype = DType::kF32, .tokens = 8, .row = 8});
  std::vector<const Node*> attentions;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kAttention) attentions.push_back(&node);
  }
  ASSERT_EQ(attentions.size(), 5u);
  for (const auto& [taker, giver] : {std::pair{3u, 1u}, {4u, 2u}}) {
    for (const size_t operand : {1u, 2u}) {
      EXPECT_EQ(attentions[taker]->inputs[operand], attentions[giver]->inputs[operand]) << taker;
    }
  }
  EXPECT_NE(attentions[3]->inputs[1], attentions[0]->inputs[1]);
  EXPECT_EQ(ShapeOf(*model, layer + "4.mlp.up_proj.weight"), Shape({96, 64}));
  Json wide = Gemma4Json();
  wide["use_double_wide_mlp"] = true;
  EXPECT_EQ(ShapeOf(*Read(wide), layer + "2.mlp.up_proj.weight"), Shape({96, 64}));
  EXPECT_EQ(ShapeOf(*Read(wide), layer + "4.mlp.up_proj.weight"), Shape({192, 64}));
}

TEST(HybridConfig, Gemma4sHeadsOfFullAttentionStandAtTheTopOrByLayer) {
  Json at_top = Gemma4Json();
  at_top.update({{"attention_k_eq_v", true}, {"num_global_key_value_heads", 1}});
  Json by_layer = at_top;
  by_layer.erase("global_head_dim");
  by_layer.erase("num_global_key_value_heads");
  for (const char* layer : {"2", "4"}) {
    by_layer["per_layer_config"][layer] = {{"head_dim", 32}, {"num_key_value_heads", 1}};
  }
  const Graph a = Read(at_top)->Forward({.tokens = 8}), b = Read(by_layer)->Forward({.tokens = 8});
  EXPECT_EQ(PrintGraph(a), PrintGraph(b));
  EXPECT_EQ(ShapeOf(*Read(at_top), "model.layers.2.self_attn.k_proj.weight"), Shape({32, 64}));
  EXPECT_FALSE(HasWeight(*Read(at_top), "model.layers.2.self_attn.v_proj.weight"));
  // Only values that are keys have KV heads of their own.
  at_top["attention_k_eq_v"] = false;
  EXPECT_EQ(ShapeOf(*Read(at_top), "model.layers.2.self_attn.k_proj.weight"), Shape({64, 64}));
  by_layer["per_layer_config"]["2"]["sliding_window"] = 7;
  const auto refused = ModelFromConfig(by_layer, "config.json");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("sets sliding_window of layer 2"), std::string::npos);
  by_layer["per_layer_config"]["2"] = {{"head_dim", 16}};
  ExpectRefused(by_layer, "per_layer_config", by_layer["per_layer_config"], StatusCode::kUnsupported);
  by_layer["per_layer_config"] = {{"5", {{"head_dim", 32}}}};
  ExpectRefused(by_layer, "per_layer_config", by_layer["per_layer_config"], StatusCode::kCorrupt);
}

TEST(HybridConfig, WhatGemma4DoesNotComputeIsRefusedByKeyAndValue) {
  ExpectRefused(Gemma4Json(), "enable_moe_block", true, StatusCode::kUnsupported);
  ExpectRefused(Gemma4Json(), "use_bidirectional_attention", "all", StatusCode::kUnsupported);
  ExpectRefused(Gemma4Json(), "num_kv_shared_layers", 3, StatusCode::kUnsupported);  // none of full attention is left
  ExpectRefused(Gemma4Json(), "num_kv_shared_layers", 5, StatusCode::kUnsupported);
  ExpectRefused(Gemma4Json(), "num_kv_shared_layers", 6, StatusCode::kCorrupt);
  ExpectRefused(Gemma4Json(), "num_kv_shared_layers", -1, StatusCode::kCorrupt);
  ExpectRefused(Gemma4Json(), "vocab_size_per_layer_input", 99, StatusCode::kUnsupported);
  ExpectRefused(Gemma4Json(), "hidden_size_per_layer_input", -8, StatusCode::kCorrupt);
  ExpectRefused(Gemma4Json(), "final_logit_softcapping", -1, StatusCode::kCorrupt);
  ExpectRefused(Gemma4Json(), "sliding_window", nullptr, StatusCode::kCorrupt);
  Json json = Gemma4Json();
  json["use_bidirectional_attention"] = "vision";
  json["hidden_size_per_layer_input"] = 0;
  EXPECT_FALSE(HasWeight(*Read(json), "model.embed_tokens_per_layer.weight"));
}

// A number that no method trains is neither counted nor made trainable.
TEST(HybridConfig, Gemma4sLayerScalarsAreNotTrained) {
  const auto model = Read(Gemma4Json());
  Graph graph = model->Forward({.tokens = 8});
  TrainAllWeights(&graph);
  EXPECT_FALSE(graph.value(graph.FindSource("model.layers.3.layer_scalar")).trainable);
  EXPECT_TRUE(graph.value(graph.FindSource("model.embed_tokens_per_layer.weight")).trainable);
  int64_t stored = 0;
  for (const WeightDeclaration& w : model->weights()) stored += w.shape.elements();
  EXPECT_EQ(NumParameters(*model), stored - 5);
}

TEST(HybridConfig, UnknownTypesOfLayersAreRefusedByName) {
  ExpectRefused(Lfm2Json(), "layer_types", {"conv", "full_attention", "linear_attention"}, StatusCode::kUnsupported);
  ExpectRefused(Lfm2Json(), "layer_types", {"conv", "full_attention"}, StatusCode::kCorrupt);
  ExpectRefused(Lfm2Json(), "layer_types", "conv", StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "layer_types", {"conv", "full_attention", "conv", "conv"}, StatusCode::kUnsupported);
  ExpectRefused(Qwen35Json(), "full_attention_interval", 0, StatusCode::kCorrupt);
  ExpectRefused(Granite4Json(), "layer_types", {"mamba", "attention", "conv"}, StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "layer_types", {"mamba", "attention"}, StatusCode::kCorrupt);
  Json indices = Lfm2Json();
  indices.erase("layer_types");
  ExpectRefused(indices, "full_attn_idxs", {-1}, StatusCode::kCorrupt);
  ExpectRefused(indices, "full_attn_idxs", "1", StatusCode::kCorrupt);
}

TEST(HybridConfig, SizesThatDoNotFitAreRefusedByKeyAndValue) {
  for (const int64_t taps : {0, 9}) {
    ExpectRefused(Lfm2Json(), "conv_L_cache", taps, StatusCode::kUnsupported);
    ExpectRefused(Qwen35Json(), "linear_conv_kernel_dim", taps, StatusCode::kUnsupported);
  }
  ExpectRefused(Lfm2Json(), "block_multiple_of", 0, StatusCode::kCorrupt);
  ExpectRefused(Lfm2Json(), "block_ffn_dim_multiplier", -1.5, StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "linear_num_value_heads", 3, StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "linear_num_key_heads", 0, StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "linear_key_head_dim", -1, StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "linear_value_head_dim", 1 << 20, StatusCode::kCorrupt);
  ExpectRefused(Qwen35Json(), "hidden_act", "gelu", StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "mamba_d_conv", 9, StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "mamba_n_heads", 3, StatusCode::kCorrupt);
  ExpectRefused(Granite4Json(), "mamba_d_state", 0, StatusCode::kCorrupt);
  ExpectRefused(Granite4Json(), "mamba_n_groups", 3, StatusCode::kCorrupt);
  ExpectRefused(Granite4Json(), "mamba_expand", -1, StatusCode::kCorrupt);
  ExpectRefused(Granite4Json(), "mamba_d_head", 8, StatusCode::kCorrupt);
  ExpectRefused(FalconH1Json(), "mamba_d_ssm", 30, StatusCode::kCorrupt);
  ExpectRefused(FalconH1Json(), "mamba_d_head", 4, StatusCode::kCorrupt);
  ExpectRefused(FalconH1Json(), "ssm_multipliers", {1.0, 2.0}, StatusCode::kCorrupt);
  ExpectRefused(FalconH1Json(), "mlp_multipliers", {1.0, "2"}, StatusCode::kCorrupt);
  ExpectRefused(FalconH1Json(), "key_multiplier", 0, StatusCode::kCorrupt);
  ExpectRefused(NemotronHJson(), "n_groups", 3, StatusCode::kCorrupt);
  ExpectRefused(NemotronHJson(), "mamba_head_dim", 0, StatusCode::kCorrupt);
  ExpectRefused(NemotronHJson(), "time_step_min", -1, StatusCode::kCorrupt);
  ExpectRefused(NemotronHJson(), "conv_kernel", 9, StatusCode::kUnsupported);
  ExpectRefused(NemotronHJson(), "mamba_hidden_act", "gelu", StatusCode::kUnsupported);
}

TEST(HybridConfig, WhatMambaDoesNotComputeIsRefusedByKeyAndValue) {
  ExpectRefused(Granite4Json(), "time_step_limit", {0.0, 0.1}, StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "time_step_limit", {0.01, {{"__float__", "Infinity"}}}, StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "position_embedding_type", "alibi", StatusCode::kUnsupported);
  ExpectRefused(Granite4Json(), "hidden_act", "gelu", StatusCode::kUnsupported);
  ExpectRefused(FalconH1Json(), "time_step_limit", {0.0, 0.1}, StatusCode::kUnsupported);
  ExpectRefused(FalconH1Json(), "hidden_act", "gelu", StatusCode::kUnsupported);
}

// As files of Granite 4 have them, and as newer versions of transformers write them.
TEST(HybridConfig, Granite4sTypesOfLayersHaveTwoNames) {
  Json newer = Granite4Json();
  newer["layer_types"] = {"linear_attention", "full_attention", "linear_attention"};
  newer["mamba_d_head"] = 16;
  newer["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  Json older = Granite4Json();
  older["layers_block_type"] = older["layer_types"];
  older.erase("layer_types");
  for (const Json& config : {newer, older}) EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 1, 0}));
  older.erase("layers_block_type");
  EXPECT_EQ(Read(older)->facts().kinds, (std::vector<int>{0, 0, 0}));
}

std::vector<std::string> ModulesOfTheFirstBlock(const Json& config) {
  std::vector<std::string> paths;
  const std::unique_ptr<Model> model = Read(config);
  for (const LinearModule& module : model->modules()) {
    if (module.path.find("layers.0.") != std::string::npos) paths.push_back(module.path);
  }
  return paths;
}

// Adapters find the modules that PEFT finds; convolutions and vectors of heads are none.
TEST(HybridConfig, ModulesHaveTheNamesOfTheClass) {
  const std::string at = "model.layers.0.";
  EXPECT_EQ(ModulesOfTheFirstBlock(Granite4Json()),
            (std::vector<std::string>{at + "mamba.in_proj", at + "mamba.out_proj", at + "shared_mlp.input_linear",
                                      at + "shared_mlp.output_linear"}));
  EXPECT_EQ(
      ModulesOfTheFirstBlock(Qwen35Json()),
      (std::vector<std::string>{at + "linear_attn.in_proj_qkv", at + "linear_attn.in_proj_z",
                                at + "linear_attn.in_proj_b", at + "linear_attn.in_proj_a", at + "linear_attn.out_proj",
                                at + "mlp.gate_proj", at + "mlp.up_proj", at + "mlp.down_proj"}));
}

Json Lfm3Json() {
  Json json = Lfm2Json();
  json["architectures"] = {"Lfm3ForCausalLM"};
  json["layer_types"] = {"conv", "sliding_attention", "full_attention"};
  json["head_dim"] = 16;
  return json;
}

TEST(HybridConfig, Lfm3HasGatesOfHeadsAndARotaryEmbeddingForEachTypeOfLayer) {
  const auto model = Read(Lfm3Json());
  EXPECT_EQ(model->facts().kinds, (std::vector<int>{0, 1, 2}));
  const Graph graph = model->Forward({.tokens = 8, .row = 8, .training = true});
  std::vector<int64_t> windows;
  std::vector<std::vector<double>> frequencies;
  int gates = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kAttention) windows.push_back(node.attributes.IntOr("window", 0));
    if (node.op == Op::kRopeTable) frequencies.push_back(node.attributes.Doubles("inv_freq"));
    gates += node.op == Op::kGateHeads;
  }
  EXPECT_EQ(windows, (std::vector<int64_t>{256, 0}));
  EXPECT_EQ(gates, 2);
  ASSERT_EQ(frequencies.size(), 2u);
  EXPECT_EQ(frequencies[0].back(), 0) << "of full attention half of the pairs turn";
  EXPECT_GT(frequencies[1].back(), 0);
  Json plain = Lfm3Json();
  plain["use_attention_gate"] = plain["use_sandwich_norm"] = false;
  const Graph without = Read(plain)->Forward({.tokens = 8, .row = 8, .training = true});
  for (const Node& node : without.nodes()) EXPECT_NE(node.op, Op::kGateHeads);
  EXPECT_EQ(graph.nodes().size() - without.nodes().size(), 2u * 2 + 3u * 2) << "gates, and two norms in each block";

  ExpectRefused(Lfm3Json(), "layer_types", {"conv", "mamba", "conv"}, StatusCode::kUnsupported);
  ExpectRefused(Lfm3Json(), "layer_types", {"conv"}, StatusCode::kCorrupt);
  ExpectRefused(Lfm3Json(), "conv_L_cache", 9, StatusCode::kUnsupported);
  ExpectRefused(Lfm3Json(), "rope_parameters", {{"rope_theta", 1e4}}, StatusCode::kCorrupt);
  Json windowless = Lfm3Json();
  windowless["sliding_window"] = nullptr;
  const auto refused = ModelFromConfig(windowless, "config.json");
  EXPECT_NE(refused.status().message().find("sliding_window sets no window"), std::string::npos);
}

}  // namespace
}  // namespace temper::hybrid_config_test
