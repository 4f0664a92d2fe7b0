// Reading the config.json of each family, and refusing invalid ones.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/model.h"

namespace temper {
namespace {

Json LlamaJson() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})");
}
Json OptJson() {
  return Json::parse(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 96, "max_position_embeddings": 128})");
}

// Reads the model of `base` with `key` set to `value`.
Result<std::unique_ptr<Model>> With(Json base, const std::string& key, const Json& value) {
  base[key] = value;
  return ModelFromConfig(base, "config.json");
}
void ExpectRefused(const Json& base, const std::string& key, const Json& value, StatusCode code) {
  const auto model = With(base, key, value);
  ASSERT_FALSE(model.ok()) << key << " = " << value;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_NE(model.status().message().find("config.json"), std::string::npos) << model.status().message();
}

TEST(ModelConfig, UnknownArchitecturesAreRefusedListingTheKnownOnes) {
  for (const char* name : {"GPTJForCausalLM", "LlamaForSequenceClassification", ""}) {
    const auto model = With(LlamaJson(), "architectures", Json::array({name}));
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(model.status().message().find("LlamaForCausalLM"), std::string::npos);
    EXPECT_NE(model.status().message().find("OPTForCausalLM"), std::string::npos);
  }
  EXPECT_FALSE(ModelFromConfig(Json::array(), "config.json").ok());
  EXPECT_FALSE(ModelFromConfig(Json::object(), "config.json").ok());
  EXPECT_FALSE(ModelFromConfig(Json(3), "config.json").ok());
}

TEST(ModelConfig, ModelTypeStandsInForTheArchitecture) {
  Json llama = LlamaJson(), opt = OptJson();
  llama.erase("architectures");
  llama["model_type"] = "llama";
  opt["architectures"] = nullptr;
  opt["model_type"] = "opt";
  EXPECT_EQ((*ModelFromConfig(llama, "f"))->facts().architecture, "LlamaForCausalLM");
  EXPECT_EQ((*ModelFromConfig(opt, "f"))->facts().architecture, "OPTForCausalLM");
}

TEST(ModelConfig, QuantisedModelsAreRefused) {
  ExpectRefused(LlamaJson(), "quantization_config", {{"bits", 4}}, StatusCode::kUnsupported);
  EXPECT_TRUE(With(LlamaJson(), "quantization_config", nullptr).ok());
}

TEST(ModelConfig, InvalidSizesAreRefused) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "intermediate_size", "max_position_embeddings", "head_dim"}) {
    for (const Json& value : {Json(0), Json(-1), Json(int64_t{1} << 40), Json(INT64_MAX), Json(INT64_MIN),
                              Json(UINT64_MAX), Json("64"), Json(64.5), Json::array({64}), Json(true)}) {
      ExpectRefused(LlamaJson(), key, value, StatusCode::kCorrupt);
    }
  }
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim",
                          "max_position_embeddings", "word_embed_proj_dim"}) {
    for (const Json& value : {Json(0), Json(-1), Json(int64_t{1} << 40), Json(UINT64_MAX), Json("64"), Json(64.5)}) {
      ExpectRefused(OptJson(), key, value, StatusCode::kCorrupt);
    }
  }
}

TEST(ModelConfig, InconsistentSizesAreRefused) {
  ExpectRefused(LlamaJson(), "num_key_value_heads", 3, StatusCode::kCorrupt);
  ExpectRefused(LlamaJson(), "num_key_value_heads", 8, StatusCode::kCorrupt);
  ExpectRefused(LlamaJson(), "head_dim", 15, StatusCode::kCorrupt);
  ExpectRefused(OptJson(), "num_attention_heads", 5, StatusCode::kCorrupt);
}

TEST(ModelConfig, TheLargestSizesDoNotOverflow) {
  Json json = LlamaJson();
  json["vocab_size"] = json["max_position_embeddings"] = kMaxRows;
  json["hidden_size"] = json["intermediate_size"] = kMaxWidth;
  json["num_attention_heads"] = json["num_key_value_heads"] = json["head_dim"] = kMaxHeads;
  json["num_hidden_layers"] = 2;
  const auto model = ModelFromConfig(json, "f");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_GT(NumParameters(**model), int64_t{1} << 44);
}

TEST(ModelConfig, UnsupportedActivationsAreRefused) {
  ExpectRefused(LlamaJson(), "hidden_act", "gelu", StatusCode::kUnsupported);
  ExpectRefused(LlamaJson(), "hidden_act", 3, StatusCode::kCorrupt);
  ExpectRefused(OptJson(), "activation_function", "silu", StatusCode::kUnsupported);
  EXPECT_TRUE(With(LlamaJson(), "hidden_act", "silu").ok());
  EXPECT_TRUE(With(OptJson(), "activation_function", "gelu").ok());
}

TEST(ModelConfig, ValuesOfTheWrongTypeAreRefused) {
  for (const char* key : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) {
    ExpectRefused(LlamaJson(), key, "yes", StatusCode::kCorrupt);
  }
  for (const char* key : {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine",
                          "_remove_final_layer_norm", "tie_word_embeddings"}) {
    ExpectRefused(OptJson(), key, 1, StatusCode::kCorrupt);
  }
  ExpectRefused(LlamaJson(), "rms_norm_eps", "1e-5", StatusCode::kCorrupt);
  ExpectRefused(LlamaJson(), "rms_norm_eps", -1e-5, StatusCode::kCorrupt);
  ExpectRefused(OptJson(), "init_std", "0.02", StatusCode::kCorrupt);
}

std::map<std::string, Shape> WeightsOf(const Model& model) {
  std::map<std::string, Shape> weights;
  for (const WeightDeclaration& w : model.weights()) {
    EXPECT_TRUE(weights.emplace(w.name, w.shape).second) << w.name << " twice";
  }
  return weights;
}

// A weight that is declared but not read would never be trained;
// one that is read but not declared would never be loaded.
void ExpectForwardUsesDeclaredWeights(const Json& json) {
  const auto model = ModelFromConfig(json, "f");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const int64_t cache : {int64_t{0}, int64_t{32}}) {
    const Graph graph = (*model)->Forward({.tokens = 8, .cache = cache});
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    std::map<std::string, Shape> sources;
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (graph.value(id).role == Role::kWeight) sources.emplace(graph.value(id).name, graph.value(id).type.shape);
    }
    EXPECT_EQ(sources, WeightsOf(**model)) << json;
  }
}

TEST(ModelConfig, ForwardUsesExactlyTheDeclaredWeights) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      for (const bool c : {false, true}) {
        Json llama = LlamaJson();
        llama["tie_word_embeddings"] = a;
        llama["attention_bias"] = b;
        llama["mlp_bias"] = c;
        ExpectForwardUsesDeclaredWeights(llama);
        Json opt = OptJson();
        opt["tie_word_embeddings"] = a;
        opt["enable_bias"] = b;
        opt["do_layer_norm_before"] = c;
        ExpectForwardUsesDeclaredWeights(opt);
        opt["word_embed_proj_dim"] = 32;
        opt["layer_norm_elementwise_affine"] = a;
        opt["_remove_final_layer_norm"] = b;
        ExpectForwardUsesDeclaredWeights(opt);
      }
    }
  }
}

TEST(ModelConfig, PublishedModelsHaveTheirPublishedSizes) {
  // Parameters as the models' pages count them (transformers: sum of p.numel()).
  const auto count = [](const char* text) { return NumParameters(**ModelFromConfig(Json::parse(text), "f")); };
  EXPECT_EQ(count(R"({"architectures": ["OPTForCausalLM"]})"), 125239296) << "facebook/opt-125m: the class defaults";
  EXPECT_EQ(count(R"({"architectures": ["LlamaForCausalLM"]})"), 6738415616) << "Llama-2-7b: the class defaults";
  EXPECT_EQ(count(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 8192, "tie_word_embeddings": true})"),
            1235814400)
      << "Llama-3.2-1B";
  EXPECT_EQ(
      count(R"({"architectures": ["OPTForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096,
      "num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": false})"),
      331196416)
      << "facebook/opt-350m";
  EXPECT_EQ(count(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_hidden_layers": 24,
      "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
      "tie_word_embeddings": true})"),
            494032768)
      << "Qwen2.5-0.5B";
  EXPECT_EQ(count(R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
      "tie_word_embeddings": true})"),
            596049920)
      << "Qwen3-0.6B";
  EXPECT_EQ(count(R"({"architectures": ["MistralForCausalLM"]})"), 7241732096) << "Mistral-7B: the class defaults";
  EXPECT_EQ(count(R"({"architectures": ["SeedOssForCausalLM"], "hidden_size": 5120})"), 36151104512) << "Seed-OSS-36B";
}

Json Qwen2Json() {
  Json json = LlamaJson();
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["num_hidden_layers"] = 4;
  json["max_window_layers"] = 3;
  json["sliding_window"] = 16;
  return json;
}

std::vector<int64_t> WindowsOf(const Model& model) {
  std::vector<int64_t> windows;
  const Graph graph = model.Forward({.tokens = 8, .row = 8});
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kAttention) windows.push_back(node.attributes.Int("window"));
  }
  return windows;
}

// As in transformers' Qwen2Config, sliding_window has no effect without use_sliding_window.
TEST(ModelConfig, BlocksHaveTheWindowsOfTheFile) {
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(WindowsOf(**ModelFromConfig(Qwen2Json(), "f")), Windows({0, 0, 0, 0}));
  const auto last = With(Qwen2Json(), "use_sliding_window", true);
  EXPECT_EQ(WindowsOf(**last), Windows({0, 0, 0, 16}));
  EXPECT_EQ((*last)->facts().kinds, std::vector<int>({0, 0, 0, 3}));
  const auto picked = (*last)->WithBlocks(std::vector<int>{3, 0, 3});
  EXPECT_EQ(WindowsOf(*picked), Windows({16, 0, 16}));
  EXPECT_EQ(picked->facts().kinds, std::vector<int>({0, 1, 0}));
  Json listed = Qwen2Json();
  listed["use_sliding_window"] = true;
  listed["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(WindowsOf(**ModelFromConfig(listed, "f")), Windows({16, 0, 0, 16}));
  ExpectRefused(listed, "layer_types", {"full_attention"}, StatusCode::kCorrupt);
  ExpectRefused(listed, "layer_types", {"full_attention", "full_attention", "full_attention", "linear_attention"},
                StatusCode::kUnsupported);
  Json mistral = LlamaJson();
  mistral["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(WindowsOf(**ModelFromConfig(mistral, "f")), Windows({4096, 4096})) << "the class default";
  EXPECT_EQ(WindowsOf(**With(mistral, "sliding_window", nullptr)), Windows({0, 0}));
  ExpectRefused(mistral, "sliding_window", -1, StatusCode::kCorrupt);
}

// To transformers' classes, null is not a missing key.
TEST(ModelConfig, NullSizesFollowFromTheOthers) {
  Json seed = LlamaJson();
  seed["architectures"] = {"SeedOssForCausalLM"};
  const auto rows = [](const Json& json, const char* module) {
    const auto model = ModelFromConfig(json, "f");
    EXPECT_TRUE(model.ok()) << model.status().message();
    return WeightsOf(**model).at(std::string("model.layers.0.self_attn.") + module + ".weight")[0];
  };
  EXPECT_EQ(rows(seed, "q_proj"), 4 * 128) << "the class default";
  seed["head_dim"] = nullptr;
  seed["num_key_value_heads"] = nullptr;
  EXPECT_EQ(rows(seed, "q_proj"), 64);
  EXPECT_EQ(rows(seed, "k_proj"), 64);
}

TEST(ModelConfig, UnsupportedSettingsPerLayerAreRefused) {
  ExpectRefused(LlamaJson(), "per_layer_config", {{"0", {{"num_key_value_heads", 1}}}}, StatusCode::kUnsupported);
  const Json nested = {{"full_attention", {{"rope_theta", 1e6}}}, {"sliding_attention", {{"rope_theta", 1e4}}}};
  ExpectRefused(LlamaJson(), "rope_parameters", nested, StatusCode::kUnsupported);
  Json olmo = LlamaJson();
  olmo["architectures"] = {"Olmo3ForCausalLM"};
  EXPECT_TRUE(With(olmo, "rope_parameters", nested).ok());
  // Sliding layers without a window size.
  ExpectRefused(Qwen2Json(), "layer_types", {"sliding_attention", "full_attention", "full_attention", "full_attention"},
                StatusCode::kCorrupt);
  Json smol = LlamaJson();
  smol["architectures"] = {"SmolLM3ForCausalLM"};
  EXPECT_TRUE(With(smol, "no_rope_layers", {1, 0}).ok());
  ExpectRefused(smol, "no_rope_layers", {1}, StatusCode::kCorrupt);
  ExpectRefused(smol, "no_rope_layers", {1, 2}, StatusCode::kCorrupt);
  ExpectRefused(smol, "no_rope_layer_interval", 0, StatusCode::kCorrupt);
}

// The planner's search compiles such a model instead of the deep one.
TEST(Model, WithBlocksKeepsOnlyThoseBlocks) {
  Json opt = OptJson(), llama = LlamaJson();
  for (Json* json : {&opt, &llama}) {
    (*json)["num_hidden_layers"] = 4;
    const auto four = ModelFromConfig(*json, "f");
    (*json)["num_hidden_layers"] = 2;
    const auto two = ModelFromConfig(*json, "f");
    const auto picked = (*four)->WithBlocks(std::vector<int>{0, 3});
    EXPECT_EQ(PrintGraph(picked->Forward({.tokens = 8, .row = 8})),
              PrintGraph((*two)->Forward({.tokens = 8, .row = 8})));
    EXPECT_EQ(WeightsOf(*picked), WeightsOf(**two));
    EXPECT_EQ((*four)->facts().kinds, std::vector<int>(4, 0));
    EXPECT_EQ(picked->facts().kinds, std::vector<int>(2, 0));
  }
}

int CountDropouts(const Model& model, bool training, double p) {
  const Graph graph = model.Forward({.tokens = 8, .row = 8, .training = training});
  int n = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::kDropout) continue;
    EXPECT_EQ(node.attributes.Double("p"), p);
    ++n;
  }
  return n;
}

// transformers' OPTDecoderLayer applies dropout to the outputs
// of attention and MLP, with 0.1 if the file lacks the key.
TEST(ModelConfig, OptAppliesTheConfiguredDropoutInTraining) {
  const auto silent = ModelFromConfig(OptJson(), "config.json");
  EXPECT_EQ(CountDropouts(**silent, /*training=*/true, 0.1), 4);
  EXPECT_EQ(CountDropouts(**silent, /*training=*/false, 0.1), 0);
  EXPECT_EQ(CountDropouts(**With(OptJson(), "dropout", 0.3), /*training=*/true, 0.3), 4);
  const auto none = With(OptJson(), "dropout", 0);
  EXPECT_EQ(CountDropouts(**none, /*training=*/true, 0), 0);
  EXPECT_EQ(CountDropouts(**ModelFromConfig(LlamaJson(), "f"), /*training=*/true, 0), 0);
  EXPECT_EQ((*silent)->facts().training_notes.size(), 1u);
  EXPECT_TRUE((*none)->facts().training_notes.empty());
  for (const double p : {-0.1, 1.0}) ExpectRefused(OptJson(), "dropout", p, StatusCode::kCorrupt);
}

TEST(ModelConfig, DropoutThatIsNotAppliedIsNoted) {
  const auto llama = With(LlamaJson(), "attention_dropout", 0.25);
  ASSERT_EQ((*llama)->facts().training_notes.size(), 1u);
  EXPECT_EQ((*llama)->facts().training_notes[0], "attention_dropout 0.25 of config.json is not applied in training");
  EXPECT_EQ((*With(OptJson(), "layerdrop", 0.5))->facts().training_notes.size(), 2u);
  ExpectRefused(LlamaJson(), "attention_dropout", "much", StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper
