// Reading the config.json of families whose MLPs are experts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/base_format.h"
#include "model/families.h"
#include "model/model.h"
#include "model/quantisation_config.h"

namespace temper::mixture_config_test {
namespace {

Json Qwen3MoeJson() {
  return Json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2})");
}
Json MixtralJson() {
  return Json::parse(R"({"architectures": ["MixtralForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96})");
}

std::unique_ptr<Model> Read(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// The error names the key and the value.
void ExpectRefused(Json config, const std::string& key, const Json& value, StatusCode code) {
  config[key] = value;
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_FALSE(model.ok()) << key << " = " << value;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_NE(model.status().message().find(key), std::string::npos) << model.status().message();
  if (value.is_number_integer() && code == StatusCode::kCorrupt) {
    EXPECT_NE(model.status().message().find(value.dump()), std::string::npos) << model.status().message();
  }
}

const WeightDeclaration& WeightOf(const Model& model, const std::string& name) {
  for (const WeightDeclaration& w : model.weights()) {
    if (w.name == name) return w;
  }
  ADD_FAILURE() << "no weight " << name;
  return model.weights().front();
}

TEST(MixtureConfig, SizesOfExpertsThatDoNotFitAreRefusedByKeyAndValue) {
  for (const int64_t experts : {0, -1, 1 << 20}) {
    ExpectRefused(Qwen3MoeJson(), "num_experts", experts, StatusCode::kCorrupt);
    ExpectRefused(MixtralJson(), "num_local_experts", experts, StatusCode::kCorrupt);
  }
  for (const int64_t active : {0, 9, -2}) {
    ExpectRefused(Qwen3MoeJson(), "num_experts_per_tok", active, StatusCode::kCorrupt);
  }
  ExpectRefused(Qwen3MoeJson(), "num_local_experts", 4, StatusCode::kCorrupt);  // num_experts is 8
  ExpectRefused(Qwen3MoeJson(), "moe_intermediate_size", 0, StatusCode::kCorrupt);
  ExpectRefused(Qwen3MoeJson(), "decoder_sparse_step", 0, StatusCode::kCorrupt);
  ExpectRefused(Qwen3MoeJson(), "mlp_only_layers", "all", StatusCode::kCorrupt);
  ExpectRefused(MixtralJson(), "router_jitter_noise", 0.1, StatusCode::kUnsupported);
  Json olmoe = MixtralJson();
  olmoe["architectures"] = {"OlmoeForCausalLM"};
  ExpectRefused(olmoe, "sliding_window", 8, StatusCode::kUnsupported);
}

TEST(MixtureConfig, BothNamesOfTheNumberOfExpertsAreRead) {
  Json config = Qwen3MoeJson();
  config.erase("num_experts");
  config["num_local_experts"] = 8;
  const std::string router = "model.layers.0.mlp.gate.weight";
  EXPECT_EQ(WeightOf(*Read(config), router).shape, WeightOf(*Read(Qwen3MoeJson()), router).shape);
}

TEST(MixtureConfig, LayersWithAnMlpAreOfAnotherKind) {
  Json config = Qwen3MoeJson();
  EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 0, 0, 0}));
  config["mlp_only_layers"] = {1};
  EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 1, 0, 0}));
  config["decoder_sparse_step"] = 2;  // experts in layers 1 and 3, of which 1 is listed
  EXPECT_EQ(Read(config)->facts().kinds, (std::vector<int>{0, 0, 0, 3}));
}

TEST(MixtureConfig, AStackIsReadFromATensorOfEachExpertUnderTheNamesThatFilesHave) {
  const auto mixtral = Read(MixtralJson()), qwen = Read(Qwen3MoeJson());
  const WeightDeclaration& up = WeightOf(*mixtral, "model.layers.1.mlp.experts.gate_up_proj/up");
  EXPECT_EQ(up.shape, Shape({8, 96, 64}));
  ASSERT_EQ(up.source.tensors().size(), 8u);
  EXPECT_EQ(up.source.tensors()[3].name, "model.layers.1.block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(WeightOf(*mixtral, "model.layers.1.mlp.gate.weight").source.tensors()[0].name,
            "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(WeightOf(*qwen, "model.layers.1.mlp.experts.down_proj").source.tensors()[7].name,
            "model.layers.1.mlp.experts.7.down_proj.weight");
}

// Gate above up in each matrix of one tensor; under the names that Granite's files have.
TEST(MixtureConfig, SegmentsOfAStackThatFilesHaveInOneTensorAreRowsOfEachMatrix) {
  Json config = Qwen3MoeJson();
  config["architectures"] = {"Qwen3_5MoeForCausalLM"};
  const auto qwen = Read(config);
  const WeightDeclaration& up = WeightOf(*qwen, "model.layers.1.mlp.experts.gate_up_proj/up");
  EXPECT_EQ(up.shape, Shape({8, 32, 64}));
  ASSERT_EQ(up.source.tensors().size(), 1u);
  EXPECT_EQ(up.source.tensors()[0].name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(up.source.tensors()[0].shape, Shape({8, 64, 64}));
  EXPECT_EQ(up.source.boxes()[0].begin, Shape({0, 32, 0}));
  config = MixtralJson();
  config["architectures"] = {"GraniteMoeForCausalLM"};
  const auto granite = Read(config);
  const WeightDeclaration& down = WeightOf(*granite, "model.layers.1.block_sparse_moe.experts.down_proj");
  EXPECT_EQ(down.source.tensors()[0].name, "model.layers.1.block_sparse_moe.output_linear.weight");
  EXPECT_EQ(WeightOf(*granite, "model.layers.1.block_sparse_moe.router.weight").source.tensors()[0].name,
            "model.layers.1.block_sparse_moe.router.layer.weight");
}

TEST(MixtureConfig, AnMlpBesideExpertsThatDoesNotFitIsRefused) {
  Json config = Qwen3MoeJson();
  config["architectures"] = {"Qwen3NextForCausalLM"};
  ExpectRefused(config, "shared_expert_intermediate_size", 0, StatusCode::kCorrupt);
  config = MixtralJson();
  config["architectures"] = {"GraniteMoeSharedForCausalLM"};
  ExpectRefused(config, "shared_intermediate_size", -1, StatusCode::kCorrupt);
}

TEST(MixtureConfig, AChoiceByABiasAmongGroupsIsReadOrRefusedByKeyAndValue) {
  Json config = MixtralJson();
  config.update({{"architectures", {"Glm4MoeForCausalLM"}},
                 {"head_dim", 16},
                 {"n_routed_experts", 8},
                 {"num_experts_per_tok", 3},
                 {"moe_intermediate_size", 32},
                 {"n_group", 4},
                 {"topk_group", 2}});
  const auto model = Read(config);
  EXPECT_EQ(model->facts().kinds, (std::vector<int>{0, 1})) << "the first block has an MLP";
  const WeightDeclaration& bias = WeightOf(*model, "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_TRUE(bias.fixed);
  EXPECT_EQ(bias.shape, Shape({8}));
  EXPECT_TRUE(model->facts().balanced_by_bias);
  ExpectRefused(config, "n_routed_experts", 0, StatusCode::kCorrupt);
  ExpectRefused(config, "n_group", 3, StatusCode::kCorrupt);
  ExpectRefused(config, "n_group", 8, StatusCode::kCorrupt);  // one each
  ExpectRefused(config, "topk_group", 5, StatusCode::kCorrupt);
  ExpectRefused(config, "topk_group", 1, StatusCode::kCorrupt);  // two experts for three
  ExpectRefused(config, "routed_scaling_factor", 0, StatusCode::kCorrupt);
  ExpectRefused(config, "n_shared_experts", -1, StatusCode::kCorrupt);
  ExpectRefused(config, "first_k_dense_replace", -1, StatusCode::kCorrupt);
  ExpectRefused(config, "model_type", "sarvam_moe", StatusCode::kUnsupported);
}

// Qwen3-30B-A3B's sizes; its page says 3.3 B active.
TEST(MixtureConfig, ParametersAreCountedThatATokenPasses) {
  const Json config = Json::parse(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936,
      "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8})");
  const auto model = Read(config);
  EXPECT_EQ(NumActiveParameters(*model), NumParameters(*model) - int64_t{48} * 120 * 3 * 768 * 2048);
  EXPECT_EQ(ParametersText(NumParameters(*model), NumActiveParameters(*model)),
            "30532.12 M parameters, 3353.03 M active");
}

Json GptOssJson() {
  return Json::parse(R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 100,
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2})");
}

TEST(MixtureConfig, AStackIsReadFromOneTensorOfMatricesInByOut) {
  const auto model = Read(GptOssJson());
  const WeightDeclaration& both = WeightOf(*model, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(both.shape, Shape({8, 192, 64})) << "gate and up in turn";
  ASSERT_EQ(both.source.tensors().size(), 1u);
  EXPECT_EQ(both.source.tensors()[0].name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(both.source.tensors()[0].shape, Shape({8, 64, 192}));
  EXPECT_TRUE(both.source.transposed());
  const WeightDeclaration& bias = WeightOf(*model, "model.layers.1.mlp.experts.down_proj_bias");
  EXPECT_EQ(bias.shape, Shape({8, 64}));
  EXPECT_FALSE(bias.decays);
  EXPECT_EQ(WeightOf(*model, "model.layers.1.mlp.router.bias").shape, Shape({8}));
  EXPECT_EQ(WeightOf(*model, "model.layers.3.self_attn.sinks").shape, Shape({4}));
  // Of 8 experts in 4 blocks 6 are idle, with 192 x 64 + 64 x 96 weights and 192 + 64 biases each.
  EXPECT_EQ(NumActiveParameters(*model), NumParameters(*model) - int64_t{4} * 6 * (192 * 64 + 64 * 96 + 192 + 64));
}

TEST(MixtureConfig, ExpertsInMxfp4AreReadOfTheFamilyThatIsPublishedSo) {
  const Json mxfp4 = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn", "lm_head"}}};
  Json config = GptOssJson();
  EXPECT_TRUE(Read(config)->facts().training_notes.empty());
  config["quantization_config"] = mxfp4;
  const auto notes = Read(config)->facts().training_notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("MXFP4"), std::string::npos) << notes[0];
  ExpectRefused(Qwen3MoeJson(), "quantization_config", mxfp4, StatusCode::kUnsupported);
  ExpectRefused(GptOssJson(), "quantization_config", {{"quant_method", "gptq"}}, StatusCode::kUnsupported);
}

// What files say of experts counts before base_dtype, and no module that is named there is in MXFP4.
TEST(MixtureConfig, ExpertsAreKeptAsBaseDtypeOrTheFilesSay) {
  const std::optional<ElementFormat> nf4 = ElementFormat::Nf4(), mxfp4 = ElementFormat::Mxfp4(), none;
  const auto format = [](const Model& model, std::optional<ElementFormat> base, DType dtype = DType::kBF16) {
    return ExpertsFormat(model.facts(), base, dtype);
  };
  EXPECT_EQ(format(*Read(Qwen3MoeJson()), nf4), nf4);
  EXPECT_EQ(format(*Read(Qwen3MoeJson()), none), none);
  Json of_bitsandbytes = Qwen3MoeJson();
  of_bitsandbytes["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                            {"load_in_4bit", true},
                                            {"bnb_4bit_quant_type", "nf4"},
                                            {"bnb_4bit_use_double_quant", true}};
  EXPECT_EQ(format(*Read(of_bitsandbytes), nf4), none) << "which leaves experts as they are";
  NoteQuantisedExperts(&of_bitsandbytes);
  EXPECT_EQ(format(*Read(of_bitsandbytes), none), nf4) << "but where files were found to have them in nf4";
  Json config = GptOssJson();
  config["quantization_config"] = {{"quant_method", "mxfp4"},
                                   {"modules_to_not_convert", {"lm_head", "model.layers.1.mlp.experts"}}};
  const auto model = Read(config);
  for (const auto& base : {none, nf4}) {
    EXPECT_EQ(format(*model, base), mxfp4);
    EXPECT_EQ(format(*model, base, DType::kF32), none);
  }
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = 8, .row = 8});
  KeepBaseAs({.experts = mxfp4, .experts_left = model->facts().not_converted}, model->modules(), &forward);
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& v = forward.value(id);
    if (v.role != Role::kWeight) continue;
    const bool stack = v.type.shape.rank() == 3, other = v.name.find("layers.1.") != v.name.npos;
    EXPECT_EQ(v.type.dtype, stack && !other ? *mxfp4 : ElementFormat(DType::kBF16)) << v.name;
  }
}

TEST(MixtureConfig, EveryOtherLayerHasAWindowAndAMissingRopeIsTheClassesOwn) {
  const auto model = Read(GptOssJson());
  EXPECT_EQ(model->facts().kinds, (std::vector<int>{0, 1, 0, 1}));
  Json config = GptOssJson();
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                            {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  config["rope_theta"] = 150000;  // as the published file has them
  const auto table = [](const Model& m) {
    const Graph graph = m.Forward({.tokens = 8, .row = 8});
    for (const Node& node : graph.nodes()) {
      if (node.op == Op::kRopeTable) return node.attributes;
    }
    return Attributes();
  };
  EXPECT_EQ(table(*model), table(*Read(config)));
  config["rope_scaling"]["factor"] = 16.0;
  EXPECT_FALSE(table(*model) == table(*Read(config)));
  ExpectRefused(GptOssJson(), "swiglu_limit", 0, StatusCode::kCorrupt);
}

TEST(MixtureConfig, ALossThatBalancesExpertsIsWhatTheFileAsksFor) {
  Json config = MixtralJson(), olmoe = config;
  olmoe["architectures"] = {"OlmoeForCausalLM"};
  EXPECT_EQ(Read(config)->facts().router_aux_loss_coef, 0);
  EXPECT_EQ(Read(config)->facts().experts, 8);
  config["output_router_logits"] = olmoe["output_router_logits"] = true;
  EXPECT_EQ(Read(config)->facts().router_aux_loss_coef, 0.001) << "the class's default";
  EXPECT_EQ(Read(olmoe)->facts().router_aux_loss_coef, 0.01) << "the class's default";
  config["router_aux_loss_coef"] = 0.25;
  EXPECT_EQ(Read(config)->facts().router_aux_loss_coef, 0.25);
  ExpectRefused(config, "router_aux_loss_coef", -0.1, StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper::mixture_config_test
