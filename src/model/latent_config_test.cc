// Reading the config.json of families with latent attention.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/families.h"
#include "model/model.h"

namespace temper::latent_config_test {
namespace {

Json DeepseekJson(const char* architecture = "DeepseekV3ForCausalLM") {
  Json config = Json::parse(R"({"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 96, "q_lora_rank": 24, "kv_lora_rank": 40, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 20, "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1})");
  config["architectures"] = {architecture};
  return config;
}

std::unique_ptr<Model> Read(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

void ExpectRefused(Json config, const std::string& key, const Json& value, StatusCode code) {
  config[key] = value;
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_FALSE(model.ok()) << key << " = " << value;
  const std::string message = model.status().message();
  EXPECT_EQ(model.status().code(), code) << message;
  EXPECT_NE(message.find(key), std::string::npos) << message;
  const std::string text = value.is_array() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
  EXPECT_NE(message.find(text), std::string::npos) << message;
}

const WeightDeclaration& WeightOf(const Model& model, const std::string& name) {
  for (const WeightDeclaration& w : model.weights()) {
    if (w.name == name) return w;
  }
  ADD_FAILURE() << "no weight " << name;
  return model.weights().front();
}

const Node& NodeOf(const Graph& graph, Op op) {
  for (const Node& node : graph.nodes()) {
    if (node.op == op) return node;
  }
  ADD_FAILURE() << ToString(op);
  return graph.nodes().front();
}

TEST(LatentConfig, AModuleOfTheFileHasLatentsAndWhatTurnsAndAnotherTheKeysAndValuesOfEachHeadInTurn) {
  const auto model = Read(DeepseekJson());
  const std::string in = "model.layers.1.self_attn.";
  EXPECT_EQ(WeightOf(*model, in + "q_a_proj.weight").shape, Shape({24, 64}));
  EXPECT_EQ(WeightOf(*model, in + "q_a_layernorm.weight").shape, Shape({24}));
  EXPECT_EQ(WeightOf(*model, in + "q_b_proj.weight").shape, Shape({4 * 24, 24}));
  EXPECT_EQ(WeightOf(*model, in + "kv_a_layernorm.weight").shape, Shape({40}));
  const WeightDeclaration& rope = WeightOf(*model, in + "kv_a_proj_with_mqa.weight/rope");
  EXPECT_EQ(rope.shape, Shape({8, 64}));
  EXPECT_EQ(rope.source.tensors().at(0).shape, Shape({48, 64}));
  EXPECT_EQ(rope.source.boxes().at(0).begin, Shape({40, 0}));
  const WeightDeclaration& values = WeightOf(*model, in + "kv_b_proj.weight/v");
  EXPECT_EQ(values.shape, Shape({4 * 20, 40}));
  EXPECT_EQ(values.source.tensors().at(0).name, in + "kv_b_proj.weight");
  EXPECT_EQ(values.source.tensors().at(0).shape, Shape({4 * 36, 40}));
  EXPECT_EQ(WeightOf(*model, in + "o_proj.weight").shape, Shape({64, 4 * 20}));
  Json config = DeepseekJson();
  config["q_lora_rank"] = nullptr;
  EXPECT_EQ(WeightOf(*Read(config), in + "q_proj.weight").shape, Shape({4 * 24, 64}));
  config.erase("q_lora_rank");
  EXPECT_EQ(WeightOf(*Read(config), in + "q_a_proj.weight").shape, Shape({1536, 64})) << "the class default";
}

TEST(LatentConfig, TheLastElementsOfQueriesTurnAndAllHeadsShareThoseOfKeys) {
  const Graph graph = Read(DeepseekJson())->Forward({.tokens = 8, .row = 8});
  const Node& rope = NodeOf(graph, Op::kRope);
  EXPECT_EQ(rope.attributes.Int("head_dim"), 24);
  EXPECT_EQ(rope.attributes.Int("first"), 16);
  EXPECT_TRUE(rope.attributes.Flag("interleaved"));
  const Node& heads = NodeOf(graph, Op::kAppendToHeads);
  EXPECT_EQ(graph.value(heads.inputs[1]).type.shape, Shape({8, 8}));
  EXPECT_EQ(graph.value(heads.outputs[0]).type.shape, Shape({8, 4 * 24}));
  Json config = DeepseekJson();
  for (const Json& no : {Json(false), Json(nullptr)}) {
    config["rope_interleave"] = no;
    EXPECT_FALSE(NodeOf(Read(config)->Forward({.tokens = 8, .row = 8}), Op::kRope).attributes.Flag("interleaved"));
  }
}

// DeepSeek-V2 Lite's rope_scaling: scores are multiplied by the square of 0.1 * 0.707 ln 40 + 1.
TEST(LatentConfig, YarnScalesScoresByMscaleAllDim) {
  const auto scale_of = [](const Json& config) {
    return NodeOf(Read(config)->Forward({.tokens = 8, .row = 8}), Op::kAttention).attributes.Double("scale");
  };
  Json config = DeepseekJson();
  EXPECT_DOUBLE_EQ(scale_of(config), 1 / std::sqrt(24.0));
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 40},
                            {"beta_fast", 32},
                            {"beta_slow", 1},
                            {"mscale", 0.707},
                            {"mscale_all_dim", 0.707},
                            {"original_max_position_embeddings", 4096}};
  const double m = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(scale_of(config), m * m / std::sqrt(24.0));
  config["rope_scaling"]["mscale_all_dim"] = 0;
  EXPECT_DOUBLE_EQ(scale_of(config), 1 / std::sqrt(24.0));
  config["rope_scaling"]["mscale_all_dim"] = 1;
  config["rope_scaling"].erase("factor");
  EXPECT_FALSE(ModelFromConfig(config, "config.json").ok());
}

TEST(LatentConfig, SizesThatDoNotFitAreRefusedByKeyAndValue) {
  for (const char* const key : {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
      ExpectRefused(DeepseekJson(), key, size, StatusCode::kCorrupt);
    }
  }
  for (const char* const key : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    ExpectRefused(DeepseekJson(), key, nullptr, StatusCode::kCorrupt);
  }
  ExpectRefused(DeepseekJson(), "qk_nope_head_dim", 15, StatusCode::kUnsupported);
  ExpectRefused(DeepseekJson(), "num_key_value_heads", 2, StatusCode::kUnsupported);
  ExpectRefused(DeepseekJson(), "head_dim", 24, StatusCode::kUnsupported);
  Json config = DeepseekJson();
  config["head_dim"] = 8;  // as save_pretrained writes it
  EXPECT_TRUE(ModelFromConfig(config, "config.json").ok());
}

TEST(LatentConfig, ExpertsOfDeepseekAreChosenAsItsVersionsDo) {
  const auto route_of = [](const Json& config) {
    return NodeOf(Read(config)->Forward({.tokens = 8, .row = 8}), Op::kRoute).attributes;
  };
  Json v3 = DeepseekJson();
  EXPECT_TRUE(route_of(v3).Flag("sigmoid"));
  EXPECT_EQ(route_of(v3).Int("groups"), 4);
  EXPECT_EQ(route_of(v3).DoubleOr("scale", 1), 2.5) << "the class default";
  EXPECT_TRUE(Read(v3)->facts().balanced_by_bias);
  EXPECT_EQ(Read(v3)->facts().kinds, (std::vector<int>{0, 1})) << "the first block has an MLP";
  ExpectRefused(v3, "n_group", 3, StatusCode::kCorrupt);
  ExpectRefused(v3, "n_group", 8, StatusCode::kCorrupt);  // one each
  ExpectRefused(v3, "scoring_func", "softmax", StatusCode::kUnsupported);
  ExpectRefused(v3, "topk_method", "greedy", StatusCode::kUnsupported);
  ExpectRefused(v3, "moe_layer_freq", 2, StatusCode::kUnsupported);

  Json v2 = DeepseekJson("DeepseekV2ForCausalLM");
  EXPECT_FALSE(route_of(v2).Flag("sigmoid"));
  EXPECT_EQ(route_of(v2).IntOr("groups", 0), 0) << "greedy";
  EXPECT_EQ(WeightOf(*Read(v2), "model.layers.1.mlp.shared_experts.up_proj.weight").shape, Shape({64, 64}));
  v2["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(route_of(v2).Int("groups"), 4);
  EXPECT_EQ(route_of(v2).Int("top_groups"), 2);
  ExpectRefused(v2, "topk_group", 1, StatusCode::kCorrupt);  // two experts for three
  ExpectRefused(v2, "topk_method", "noaux_tc", StatusCode::kUnsupported);
  ExpectRefused(v2, "norm_topk_prob", true, StatusCode::kUnsupported);
  ExpectRefused(v2, "scoring_func", "sigmoid", StatusCode::kUnsupported);
  v2.erase("num_experts_per_tok");
  EXPECT_FALSE(ModelFromConfig(v2, "config.json").ok()) << "num_experts_per_tok has no default";
}

TEST(LatentConfig, LayersForDraftsAreLeftInTheFiles) {
  const auto ignored = Read(DeepseekJson())->facts().ignored;
  EXPECT_NE(std::find(ignored.begin(), ignored.end(), ".layers.2."), ignored.end());
}

TEST(LatentConfig, Glm47FlashListsItsLayersWithExperts) {
  Json config = DeepseekJson("Glm4MoeLiteForCausalLM");
  config["num_hidden_layers"] = 3;
  EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 1, 1})) << "the class default";
  config["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 1, 0}));
  ExpectRefused(config, "mlp_layer_types", {"dense"}, StatusCode::kCorrupt);
  ExpectRefused(config, "mlp_layer_types", {"dense", "x", "dense"}, StatusCode::kUnsupported);
  ExpectRefused(config, "partial_rotary_factor", 0.5, StatusCode::kUnsupported);
}

TEST(LatentConfig, SarvamIsDeepseeksClassByOtherNamesOfKeys) {
  Json config = DeepseekJson();
  config.erase("n_group");
  config.erase("topk_group");
  config.erase("n_routed_experts");
  config.update({{"model_type", "sarvam_mla"}, {"num_experts", 6}, {"num_shared_experts", 2}, {"head_dim", 48}});
  config["rope_scaling"] = {{"type", "deepseek_yarn"}, {"factor", 40}, {"original_max_position_embeddings", 4096}};
  const auto model = Read(config);
  EXPECT_EQ(model->facts().experts, 6);
  EXPECT_EQ(WeightOf(*model, "model.layers.1.mlp.shared_experts.up_proj.weight").shape, Shape({64, 64}));
}

TEST(LatentConfig, MiniCpmScalesByDepthAndWidthAndNullScalesNothing) {
  Json config = DeepseekJson("MiniCPM3ForCausalLM");
  config.update({{"scale_depth", 3.0}, {"dim_model_base", 16}});
  const auto scales = [](const Json& c) {
    std::vector<double> factors;
    const Graph graph = Read(c)->Forward({.tokens = 8, .row = 8});
    for (const Node& node : graph.nodes()) {
      if (node.op == Op::kScale) factors.push_back(node.attributes.Double("factor"));
    }
    return factors;
  };
  const double added = 3 / std::sqrt(2.0);
  EXPECT_EQ(scales(config), (std::vector<double>{12, added, added, added, added, 0.25}));
  config.update({{"scale_emb", 1}, {"scale_depth", nullptr}, {"dim_model_base", nullptr}});
  EXPECT_TRUE(scales(config).empty());
  for (const char* const key : {"scale_emb", "scale_depth", "dim_model_base"}) {
    ExpectRefused(config, key, -1, StatusCode::kCorrupt);
  }
}

}  // namespace
}  // namespace temper::latent_config_test
