// Reading the config.json of each family, and refusing invalid ones.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/families.h"
#include "model/model.h"
#include "model/published_sizes_for_test.h"

namespace temper::config_test {
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
  for (const char* name : {"LlamaForTokenClassification", ""}) {
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

// Its body is that of the model of language, its head a row per class; a tied table is not the head's.
TEST(ModelConfig, AClassifierHasAHeadOfItsClasses) {
  Json json = LlamaJson();
  const auto language = ModelFromConfig(json, "config.json");
  ASSERT_TRUE(language.ok());
  json["architectures"] = {ClassifierOf((*language)->facts().architecture)};
  json["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  const auto model = ModelFromConfig(json, "config.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelFacts& facts = (*model)->facts();
  EXPECT_EQ(facts.architecture, "LlamaForSequenceClassification");
  EXPECT_EQ(facts.classes, 3);
  EXPECT_FALSE(facts.tied);
  const LinearModule& head = (*model)->modules().back();
  EXPECT_TRUE(head.is_head);
  EXPECT_EQ(head.path, "score");
  EXPECT_EQ(head.tensors, std::vector<std::string>{"score.weight"});
  EXPECT_EQ((*model)->weights().size(), (*language)->weights().size() + 1);
  EXPECT_EQ((*model)->weights().back().shape, (Shape{3, 64}));
  EXPECT_EQ((*model)->WithBlocks(std::vector<int>{0})->facts().classes, 3);
  EXPECT_EQ(ClassifierOf("CohereForCausalLM"), "") << "transformers has none";
}

TEST(ModelConfig, AnArchitectureOfTransformersIsRefusedWithWhatItNeeds) {
  int classes = 0;
#define TEMPER_MISSING(architecture, model_type, what)                                                              \
  for (const Json& config :                                                                                         \
       {Json{{"architectures", {#architecture}}}, Json{{"model_type", #model_type}},                                \
        Json{{"architectures", {#architecture}}, {"model_type", "llama"}, {"text_config", {{"vocab_size", 8}}}}}) { \
    const auto model = ModelFromConfig(config, "config.json");                                                      \
    ASSERT_FALSE(model.ok());                                                                                       \
    EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);                                                     \
    EXPECT_NE(model.status().message().find("is not supported: it needs "), std::string::npos) << #architecture;    \
    ++classes;                                                                                                      \
  }
#include "model/missing_list.inc"
  EXPECT_GT(classes, 300);
  const auto dbrx = ModelFromConfig({{"architectures", {"DbrxForCausalLM"}}}, "config.json");
  EXPECT_EQ(dbrx.status().message(),
            "config.json: architecture 'DbrxForCausalLM' is not supported: it needs "
            "experts in a form that no supported family has (docs/supported.md)");
}

TEST(ModelConfig, AnUnknownArchitectureIsRefusedWithTheNearestKnownOne) {
  const auto error = [](const Json& config) {
    const auto model = ModelFromConfig(config, "config.json");
    return model.ok() ? "OK" : model.status().message();
  };
  const auto expect = [&](const Json& config, const std::string& part) {
    EXPECT_NE(error(config).find(part), std::string::npos) << error(config);
    EXPECT_EQ(error(config).find('\n'), std::string::npos);
  };
  expect({{"architectures", {"Qwen4ForCausalLM"}}}, "'Qwen4ForCausalLM' is not supported; the nearest that is: Qwen");
  expect({{"model_type", "olmo4"}}, "the nearest that is: Olmo");
  expect({{"architectures", {"LlamaForCasualLM"}}}, "the nearest that is: LlamaForCausalLM");
  expect({{"architectures", {"Lamma"}}}, "nor is a relative of it");
  // By letters alone these would be Gemma, Gemma, OPT and Phi.
  for (const char* stranger : {"BertModel", "MambaModel", "DbrxModel"}) {
    expect({{"architectures", {stranger}}},
           std::string("'") + stranger + "' is not supported, nor is a relative of it");
    expect({{"architectures", {stranger}}}, "docs/supported.md");
  }
  // Wrong nesting.
  Json llama = LlamaJson();
  llama["text_config"] = {{"hidden_size", 64}};
  expect(llama, "LlamaForCausalLM has no text_config; its keys belong at the top of the file");
  Json mistral3 = LlamaJson();
  mistral3["architectures"] = {"Mistral3ForConditionalGeneration"};
  expect(mistral3, "in an object text_config, which is missing");
  expect({{"model_type", "mistral3"}, {"text_config", {{"model_type", "dbrx"}}}},
         "text_config: architecture 'dbrx' is not supported: it needs experts");
  expect({{"model_type", "mistral3"}, {"text_config", {{"model_type", "mistral3"}}}}, "is not that of a text model");
}

// transformers' LlavaModel mapping, and _tied_weights_keys.
TEST(ModelConfig, ATextModelInsideAnotherHasItsNamesThere) {
  Json text = LlamaJson();
  text.erase("architectures");
  const Json config = {
      {"architectures", {"Mistral3ForConditionalGeneration"}}, {"text_config", text}, {"tie_word_embeddings", true}};
  const auto model = ModelFromConfig(config, "f");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->facts().architecture, "Mistral3ForConditionalGeneration");
  EXPECT_TRUE((*model)->facts().keeps_other_tensors);
  EXPECT_EQ((*model)->modules().front().path, "model.language_model.layers.0.self_attn.q_proj");
  EXPECT_EQ((*model)->modules().back().path, "lm_head");
  const FileTensor& table = (*model)->weights().front().source.tensors().front();
  EXPECT_EQ(table.name, "language_model.model.embed_tokens.weight");
  for (const char* name : {"model.language_model.embed_tokens.weight", "language_model.embed_tokens.weight",
                           "language_model.lm_head.weight", "lm_head.weight"}) {
    EXPECT_EQ(std::count(table.aliases.begin(), table.aliases.end(), name), 1) << name;
  }
  EXPECT_EQ(std::count(table.aliases.begin(), table.aliases.end(), "embed_tokens.weight"), 0);
  EXPECT_EQ(NumParameters(**model), NumParameters(**ModelFromConfig(LlamaJson(), "f")));
  const auto picked = (*model)->WithBlocks(std::vector<int>{1});
  EXPECT_EQ(picked->weights().back().name, "model.language_model.norm.weight");
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

TEST(ModelConfig, OfQuantisedModelsNf4WithDoubleQuantisationIsRead) {
  ExpectRefused(LlamaJson(), "quantization_config", {{"bits", 4}}, StatusCode::kUnsupported);
  ExpectRefused(LlamaJson(), "quantization_config", 4, StatusCode::kUnsupported);
  EXPECT_TRUE(With(LlamaJson(), "quantization_config", nullptr).ok());
  Json nf4 = {{"quant_method", "bitsandbytes"},
              {"load_in_4bit", true},
              {"bnb_4bit_quant_type", "nf4"},
              {"bnb_4bit_use_double_quant", true}};
  EXPECT_TRUE(With(LlamaJson(), "quantization_config", nf4).ok());
  nf4["bnb_4bit_use_double_quant"] = false;
  ExpectRefused(LlamaJson(), "quantization_config", nf4, StatusCode::kUnsupported);
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
  ExpectRefused(LlamaJson(), "hidden_act", "relu2", StatusCode::kUnsupported);
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
  for (const PublishedSize& size : kPublishedSizes) {
    const auto model = ModelFromConfig(size.Config(), "f");
    ASSERT_TRUE(model.ok()) << size.name << ": " << model.status().message();
    EXPECT_EQ(NumParameters(**model), size.parameters) << size.name;
  }
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

Json GemmaJson(const char* architecture) {
  Json json = LlamaJson();
  json["architectures"] = {architecture};
  json["head_dim"] = 16;
  json["num_hidden_layers"] = 4;
  return json;
}

// The attribute `key` of every node of that op, 0 or "" where it has none.
template <class T>
std::vector<T> AttributesOf(const Json& json, Op op, const char* key, int64_t cache = 0) {
  const auto model = ModelFromConfig(json, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  std::vector<T> found;
  if (!model.ok()) return found;
  const Graph graph = (*model)->Forward({.dtype = DType::kBF16, .tokens = 8, .row = 8, .cache = cache});
  for (const Node& node : graph.nodes()) {
    if (node.op != op) continue;
    const AttributeValue* value = node.attributes.Find(key);
    found.push_back(value == nullptr ? T() : std::get<T>(*value));
  }
  return found;
}

TEST(ModelConfig, GatesHaveTheActivationThatTheFileNames) {
  // Whether gelu, and whether by tanh.
  const auto gate = [](const Json& json) {
    return std::pair(AttributesOf<int64_t>(json, Op::kGlu, "gelu").at(0),
                     AttributesOf<int64_t>(json, Op::kGlu, "tanh").at(0));
  };
  constexpr std::pair<int64_t, int64_t> kSilu{0, 0}, kErf{1, 0}, kTanh{1, 1};
  EXPECT_EQ(gate(LlamaJson()), kSilu);
  Json llama = LlamaJson();
  llama["hidden_act"] = "gelu";
  EXPECT_EQ(gate(llama), kErf);
  llama["hidden_act"] = "gelu_new";
  EXPECT_EQ(gate(llama), kTanh);
  // The first Gemma's files say gelu and mean the approximation; later ones have a key of their own.
  Json gemma = GemmaJson("GemmaForCausalLM");
  EXPECT_EQ(gate(gemma), kTanh);
  gemma["hidden_act"] = "gelu";
  EXPECT_EQ(gate(gemma), kTanh);
  Json gemma2 = GemmaJson("Gemma2ForCausalLM");
  gemma2["hidden_act"] = "silu";
  EXPECT_EQ(gate(gemma2), kTanh);
  gemma2["hidden_activation"] = "gelu";
  EXPECT_EQ(gate(gemma2), kErf);
}

TEST(ModelConfig, GemmasHaveTheCapsScalesAndWindowsOfTheirClasses) {
  using Doubles = std::vector<double>;
  using Windows = std::vector<int64_t>;
  Json gemma2 = GemmaJson("Gemma2ForCausalLM"), gemma3 = GemmaJson("Gemma3ForCausalLM");
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kAttention, "softcap"), Doubles(4, 50));
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kLinearCrossEntropy, "softcap"), Doubles({30}));
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kSoftcap, "cap", /*cache=*/32), Doubles({30}));
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kAttention, "scale"), Doubles(4, 1.0 / 16));
  EXPECT_EQ(WindowsOf(**ModelFromConfig(gemma2, "f")), Windows({4096, 0, 4096, 0}));
  gemma2["attn_logit_softcapping"] = gemma2["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kAttention, "softcap"), Doubles(4, 0));
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kLinearCrossEntropy, "softcap"), Doubles({0}));
  EXPECT_EQ(AttributesOf<double>(gemma2, Op::kSoftcap, "cap", /*cache=*/32), Doubles());
  for (const double cap : {0.0, -1.0}) {
    ExpectRefused(gemma2, "attn_logit_softcapping", cap, StatusCode::kCorrupt);
    ExpectRefused(gemma3, "final_logit_softcapping", cap, StatusCode::kCorrupt);
  }
  ExpectRefused(gemma2, "query_pre_attn_scalar", 0, StatusCode::kCorrupt);
  ExpectRefused(gemma2, "sliding_window", nullptr, StatusCode::kCorrupt);
  gemma3["attn_logit_softcapping"] = 50;  // which the class does not apply
  gemma3["query_pre_attn_scalar"] = 64;
  EXPECT_EQ(AttributesOf<double>(gemma3, Op::kAttention, "softcap"), Doubles(4, 0));
  EXPECT_EQ(AttributesOf<double>(gemma3, Op::kAttention, "scale"), Doubles(4, 1.0 / 8));
  gemma3["sliding_window_pattern"] = 2;
  EXPECT_EQ(WindowsOf(**ModelFromConfig(gemma3, "f")), Windows({4096, 0, 4096, 0}));
  ExpectRefused(gemma3, "sliding_window_pattern", 0, StatusCode::kCorrupt);
  for (const char* name : {"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"}) {
    ExpectRefused(GemmaJson(name), "use_bidirectional_attention", true, StatusCode::kUnsupported);
  }
  // sqrt(64) is 8; sqrt(48) is rounded to the type of the weights, bf16 here.
  EXPECT_EQ(AttributesOf<double>(gemma3, Op::kScale, "factor"), Doubles({8}));
  gemma3["hidden_size"] = 48;
  EXPECT_EQ(AttributesOf<double>(gemma3, Op::kScale, "factor"), Doubles({6.9375}));
}

TEST(ModelConfig, GranitesMultipliersAreTheFilesOrOne) {
  using Doubles = std::vector<double>;
  Json granite = LlamaJson();
  granite["architectures"] = {"GraniteForCausalLM"};
  EXPECT_EQ(AttributesOf<double>(granite, Op::kScale, "factor"), Doubles());
  EXPECT_EQ(AttributesOf<double>(granite, Op::kAttention, "scale"), Doubles({1, 1}));
  granite["embedding_multiplier"] = 12;
  granite["residual_multiplier"] = 0.25;
  granite["attention_multiplier"] = 0.125;
  granite["logits_scaling"] = 8;
  EXPECT_EQ(AttributesOf<double>(granite, Op::kScale, "factor"), Doubles({12, 0.25, 0.25, 0.25, 0.25, 0.125}));
  EXPECT_EQ(AttributesOf<double>(granite, Op::kAttention, "scale"), Doubles({0.125, 0.125}));
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    ExpectRefused(granite, key, 0, StatusCode::kCorrupt);
    ExpectRefused(granite, key, "1", StatusCode::kCorrupt);
  }
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

Json Gpt2Json() {
  return Json::parse(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 100, "n_embd": 64, "n_layer": 2,
    "n_head": 4, "n_positions": 128, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})");
}
Json As(Json base, const char* architecture) {
  base["architectures"] = {architecture};
  return base;
}

// Of the attention nodes, in order.
std::vector<double> ScalesOf(const Model& model) {
  std::vector<double> scales;
  const Graph graph = model.Forward({.tokens = 8, .row = 8});
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kAttention) scales.push_back(node.attributes.Double("scale"));
  }
  return scales;
}
// The elements of a head that turn, for each rope table.
std::vector<size_t> TurningOf(const Model& model) {
  std::vector<size_t> sizes;
  const Graph graph = model.Forward({.tokens = 8, .row = 8});
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kRopeTable) sizes.push_back(2 * node.attributes.Doubles("inv_freq").size());
  }
  return sizes;
}

TEST(ModelConfig, Gpt2ReadsItsOwnKeys) {
  const Json json = Gpt2Json();
  for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions", "n_inner"}) {
    for (const Json& value : {Json(0), Json(-1), Json(int64_t{1} << 40), Json("64"), Json(64.5)}) {
      ExpectRefused(json, key, value, StatusCode::kCorrupt);
    }
  }
  ExpectRefused(json, "n_head", 5, StatusCode::kCorrupt);
  ExpectRefused(json, "add_cross_attention", true, StatusCode::kUnsupported);
  ExpectRefused(json, "activation_function", "silu", StatusCode::kUnsupported);
  EXPECT_TRUE(With(json, "reorder_and_upcast_attn", true).ok());
  const auto inner = [](const Model& model) { return WeightsOf(model).at("transformer.h.1.mlp.c_fc.weight")[0]; };
  EXPECT_EQ(inner(**With(json, "n_inner", nullptr)), 256);
  EXPECT_EQ(inner(**With(json, "n_inner", 80)), 80);
  using Scales = std::vector<double>;
  EXPECT_EQ(ScalesOf(**ModelFromConfig(json, "f")), Scales({0.25, 0.25}));
  EXPECT_EQ(ScalesOf(**With(json, "scale_attn_weights", false)), Scales({1, 1}));
  const auto by_layer = With(json, "scale_attn_by_inverse_layer_idx", true);
  EXPECT_EQ(ScalesOf(**by_layer), Scales({0.25, 0.125}));
  EXPECT_EQ((*by_layer)->facts().kinds, std::vector<int>({0, 1}));
  EXPECT_TRUE((*by_layer)->facts().positions_are_learned);
  for (const WeightDeclaration& w : (*by_layer)->weights()) {
    EXPECT_EQ(w.init == WeightDeclaration::Init::kNormalByDepth, w.name.ends_with("c_proj.weight")) << w.name;
  }
}

TEST(ModelConfig, GptNeoXReadsItsOwnKeysOfTheRotaryEmbedding) {
  const Json json = As(LlamaJson(), "GPTNeoXForCausalLM");
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(TurningOf(**ModelFromConfig(json, "f")), Sizes{4}) << "a quarter of 16";
  EXPECT_EQ(TurningOf(**With(json, "rotary_pct", 0.5)), Sizes{8});
  EXPECT_EQ(TurningOf(**With(json, "partial_rotary_factor", 1)), Sizes{4}) << "the class does not read it";
  EXPECT_EQ(TurningOf(**With(json, "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 1.0}})),
            Sizes{16});
  ExpectRefused(json, "hidden_act", "silu", StatusCode::kUnsupported);
  ExpectRefused(json, "num_attention_heads", 5, StatusCode::kCorrupt);
  for (const char* key : {"use_parallel_residual", "attention_bias"}) {
    ExpectRefused(json, key, 1, StatusCode::kCorrupt);
    for (const bool on : {false, true}) {
      Json variant = json;
      variant[key] = on;
      ExpectForwardUsesDeclaredWeights(variant);
    }
  }
}

TEST(ModelConfig, Cohere2TurnsWhereItHasWindows) {
  Json json = As(LlamaJson(), "Cohere2ForCausalLM");
  json["num_hidden_layers"] = 4;
  json["sliding_window"] = 16;
  const auto turns = [](const Model& model) {
    int n = 0;
    const Graph graph = model.Forward({.tokens = 8, .row = 8});
    for (const Node& node : graph.nodes()) n += node.op == Op::kRope;
    return n / 2;
  };
  EXPECT_EQ(WindowsOf(**ModelFromConfig(json, "f")), std::vector<int64_t>({16, 16, 16, 0}));
  EXPECT_EQ(turns(**ModelFromConfig(json, "f")), 3);
  const auto halves = With(json, "sliding_window_pattern", 2);
  EXPECT_EQ(WindowsOf(**halves), std::vector<int64_t>({16, 0, 16, 0}));
  EXPECT_EQ(turns(**halves), 2);
  ExpectRefused(json, "sliding_window", nullptr, StatusCode::kUnsupported);
  ExpectRefused(json, "sliding_window_pattern", 0, StatusCode::kCorrupt);
  ExpectRefused(json, "hidden_act", "relu", StatusCode::kUnsupported);
  ExpectForwardUsesDeclaredWeights(json);
}

TEST(ModelConfig, Starcoder2HasOneWindowInAllLayers) {
  Json json = As(LlamaJson(), "Starcoder2ForCausalLM");
  EXPECT_EQ(WindowsOf(**ModelFromConfig(json, "f")), std::vector<int64_t>({0, 0}));
  EXPECT_EQ(WindowsOf(**With(json, "sliding_window", 16)), std::vector<int64_t>({16, 16}));
  for (const bool biases : {false, true}) {
    json["use_bias"] = biases;
    ExpectForwardUsesDeclaredWeights(json);
  }
  ExpectRefused(json, "hidden_act", "silu", StatusCode::kUnsupported);
}

Json FalconJson() {
  return Json::parse(R"({"architectures": ["FalconForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2, "max_position_embeddings": 128})");
}

TEST(ModelConfig, FalconHasTheHeadsAndNormsOfItsArchitecture) {
  const auto kv_heads = [](const Json& json) {
    const auto model = ModelFromConfig(json, "f");
    EXPECT_TRUE(model.ok()) << model.status().message();
    return (*model)->facts().heads[1].size;
  };
  Json old = FalconJson(), newer = FalconJson();
  newer["new_decoder_architecture"] = true;
  EXPECT_EQ(kv_heads(old), 1);
  EXPECT_EQ(kv_heads(newer), 2);
  ExpectRefused(old, "multi_query", false, StatusCode::kCorrupt);  // with 2 KV heads
  old.erase("num_kv_heads");
  old["multi_query"] = false;
  EXPECT_EQ(kv_heads(old), 4);
  for (const int norms : {1, 2}) {
    newer["num_ln_in_parallel_attn"] = norms;
    EXPECT_EQ((*ModelFromConfig(newer, "f"))->weights().size(), norms == 2 ? 23u : 19u);
    ExpectForwardUsesDeclaredWeights(newer);
  }
  ExpectRefused(newer, "num_kv_heads", 3, StatusCode::kCorrupt);
  ExpectRefused(newer, "parallel_attn", false, StatusCode::kCorrupt);
  ExpectRefused(FalconJson(), "num_ln_in_parallel_attn", 2, StatusCode::kCorrupt);
  ExpectRefused(FalconJson(), "head_dim", 32, StatusCode::kUnsupported);
}

TEST(ModelConfig, GptNeoHasAWindowInItsLocalLayers) {
  Json json = As(LlamaJson(), "GPTNeoForCausalLM");
  json.update({{"num_layers", 4}, {"num_heads", 4}, {"window_size", 16}});
  json["attention_types"] = Json::parse(R"([[["global", "local"], 1], [["local"], 2]])");
  EXPECT_EQ(WindowsOf(**ModelFromConfig(json, "f")), std::vector<int64_t>({0, 16, 16, 16}));
  const auto listed = With(json, "attention_layers", {"local", "global", "global", "global"});
  EXPECT_EQ(WindowsOf(**listed), std::vector<int64_t>({16, 0, 0, 0}));
  ExpectForwardUsesDeclaredWeights(json);
  for (const char* bad : {R"([[["global"], 3]])", R"([["global", 4]])", R"([[["global"], -1]])", "7",
                          R"([[["global"], 99999999999]])", R"([[[1], 4]])", R"({"global": 4})"}) {
    ExpectRefused(json, "attention_types", Json::parse(bad), StatusCode::kCorrupt);
  }
  ExpectRefused(json, "attention_layers", {"local", "global", "global", "far"}, StatusCode::kUnsupported);
  ExpectRefused(json, "attention_layers", "local", StatusCode::kCorrupt);
  ExpectRefused(json, "window_size", 0, StatusCode::kCorrupt);
}

TEST(ModelConfig, Exaone4TurnsWhereItHasWindowsIfItHasAny) {
  Json json = As(LlamaJson(), "Exaone4ForCausalLM");
  json["num_hidden_layers"] = 4;
  json["sliding_window"] = 16;
  EXPECT_EQ(WindowsOf(**ModelFromConfig(json, "f")), std::vector<int64_t>({16, 16, 16, 0}));
  EXPECT_EQ((*ModelFromConfig(json, "f"))->facts().kinds, std::vector<int>({0, 0, 0, 3}));
  EXPECT_EQ(WindowsOf(**With(json, "sliding_window", nullptr)), std::vector<int64_t>({0, 0, 0, 0}));
  // A pattern that is a text is not read where the layers are listed.
  json["sliding_window_pattern"] = "LLLG";
  ExpectRefused(json, "vocab_size", 100, StatusCode::kCorrupt);
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(WindowsOf(**ModelFromConfig(json, "f")), std::vector<int64_t>({16, 0, 0, 0}));
}

TEST(ModelConfig, CohereCompassReadsARotaryEmbeddingForEachTypeOfLayer) {
  Json json = As(LlamaJson(), "CohereCompassForCausalLM");
  ExpectRefused(json, "rope_parameters", {{"rope_theta", 1e4}}, StatusCode::kCorrupt);
  ExpectRefused(json, "rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}, StatusCode::kCorrupt);
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e4}}}, {"sliding_attention", nullptr}};
  const auto kinds = [](const Result<std::unique_ptr<Model>>& model) { return (*model)->facts().kinds; };
  EXPECT_EQ(kinds(ModelFromConfig(json, "f")), std::vector<int>({0, 0}));
  const auto mixed = With(json, "layer_types", {"full_attention", "sliding_attention"});
  EXPECT_EQ(kinds(mixed), std::vector<int>({0, 1}));
  EXPECT_EQ(WindowsOf(**mixed), std::vector<int64_t>({0, 4096}));
}

// Hunyuan's files call a base that is stretched once "dynamic", with an alpha.
TEST(ModelConfig, AnAlphaStretchesHunyuansRotaryEmbeddingOnce) {
  const auto table = [](const Json& json) {
    const Graph graph = (*ModelFromConfig(json, "f"))->Forward({.tokens = 8, .row = 8});
    for (const Node& node : graph.nodes()) {
      if (node.op == Op::kRopeTable) return node.attributes;
    }
    return Attributes();
  };
  Json json = As(LlamaJson(), "HunYuanDenseV1ForCausalLM");
  json["rope_theta"] = 10000.0 * std::pow(50.0, 16.0 / 14.0);
  const Attributes stretched = table(json);
  json["rope_theta"] = 10000.0;
  json["rope_scaling"] = {{"type", "dynamic"}, {"alpha", 50.0}, {"factor", 1.0}};
  EXPECT_EQ(table(json), stretched);
  json["rope_scaling"]["alpha"] = -1;
  ExpectRefused(json, "vocab_size", 100, StatusCode::kCorrupt);
}

TEST(ModelConfig, WhatNewFamiliesDoNotComputeIsRefusedByItsKey) {
  ExpectRefused(As(LlamaJson(), "OlmoForCausalLM"), "clip_qkv", 0, StatusCode::kCorrupt);
  ExpectRefused(As(LlamaJson(), "HeliumForCausalLM"), "head_dim", 32, StatusCode::kCorrupt);
  ExpectRefused(As(LlamaJson(), "HyperCLOVAXForCausalLM"), "attention_multiplier", 0, StatusCode::kCorrupt);
  ExpectRefused(As(LlamaJson(), "NanoChatForCausalLM"), "final_logit_softcapping", 0, StatusCode::kCorrupt);
  ExpectRefused(As(LlamaJson(), "NanoChatForCausalLM"), "rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}},
                StatusCode::kUnsupported);
  ExpectRefused(LlamaJson(), "hidden_act", "relu2", StatusCode::kUnsupported);
}

// Names in older files, in files of the model without its head, and in those of a model around it: transformers strips
// or adds base_model_prefix.
TEST(ModelConfig, TensorsAreFoundUnderTheNamesThatFilesHave) {
  const auto aliases = [](const Json& json, const std::string& name) {
    for (const FileTensor& tensor : FileTensorsOf((*ModelFromConfig(json, "f"))->StoredWeights())) {
      if (tensor.name == name) return tensor.aliases;
    }
    ADD_FAILURE() << name;
    return std::vector<std::string>();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(aliases(Gpt2Json(), "transformer.h.0.attn.c_attn.weight"),
            (Names{"h.0.attn.c_attn.weight", "transformer.transformer.h.0.attn.c_attn.weight"}));
  EXPECT_EQ(aliases(Gpt2Json(), "transformer.wte.weight"),
            (Names{"wte.weight", "transformer.transformer.wte.weight", "lm_head.weight"}));
  EXPECT_EQ(aliases(LlamaJson(), "model.norm.weight"), (Names{"norm.weight", "model.model.norm.weight"}));
  EXPECT_EQ(aliases(OptJson(), "model.decoder.final_layer_norm.weight"),
            (Names{"decoder.final_layer_norm.weight", "model.model.decoder.final_layer_norm.weight"}));
  Json neox = As(LlamaJson(), "GPTNeoXForCausalLM");
  neox["tie_word_embeddings"] = false;
  // As transformers writes EXAONE 3, and as it calls these in memory.
  for (Json exaone : {As(LlamaJson(), "ExaoneForCausalLM"), LlamaJson()}) {
    exaone["model_type"] = "exaone";
    EXPECT_EQ(aliases(exaone, "transformer.h.1.attn.attention.out_proj.weight"),
              (Names{"h.1.attn.attention.out_proj.weight", "transformer.transformer.h.1.attn.attention.out_proj.weight",
                     "model.layers.1.self_attn.o_proj.weight", "layers.1.self_attn.o_proj.weight",
                     "model.model.layers.1.self_attn.o_proj.weight"}));
    const auto model = *ModelFromConfig(exaone, "f");
    EXPECT_EQ(model->modules()[0].path, "model.layers.0.self_attn.q_proj");
    EXPECT_EQ(model->modules()[0].older_paths, Names{"transformer.h.0.attn.attention.q_proj"});
  }
  EXPECT_EQ(aliases(neox, "embed_out.weight"), Names{"lm_head.weight"});
  // Under a head of classes a table that was tied may still lie under the name of the head of words.
  Json classifier = LlamaJson();
  classifier["architectures"] = {"LlamaForSequenceClassification"};
  for (const bool tied : {false, true}) {
    classifier["tie_word_embeddings"] = tied;
    const Names found = aliases(classifier, "model.embed_tokens.weight");
    EXPECT_EQ(std::count(found.begin(), found.end(), "lm_head.weight"), tied);
  }
  EXPECT_EQ(aliases(neox, "gpt_neox.layers.0.attention.dense.weight").front(), "layers.0.attention.dense.weight");
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

// BioGPT drops out of what the MLP's last product reads, too; StableLM not of attention's output; Falcon of the sum of
// both parts.
TEST(ModelConfig, DropoutOfNewFamiliesStandsWhereTheirClassesHaveIt) {
  Json bio = As(LlamaJson(), "BioGptForCausalLM"), stable = As(LlamaJson(), "StableLmForCausalLM");
  Json falcon = FalconJson();
  bio["activation_dropout"] = stable["hidden_dropout"] = falcon["hidden_dropout"] = 0.1;
  EXPECT_EQ(CountDropouts(**ModelFromConfig(falcon, "f"), /*training=*/true, 0.1), 2) << "of the sum of both parts";
  EXPECT_EQ(CountDropouts(**ModelFromConfig(bio, "f"), /*training=*/true, 0.1), 1 + 2 * 3);
  EXPECT_EQ(CountDropouts(**ModelFromConfig(stable, "f"), /*training=*/true, 0.1), 2);
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

TEST(ModelConfig, WhatTheFirstBlockReadsIsDroppedToo) {
  Json gpt2 = Gpt2Json(), star = As(LlamaJson(), "Starcoder2ForCausalLM"), neox = As(LlamaJson(), "GPTNeoXForCausalLM");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) gpt2.erase(key);
  star["residual_dropout"] = star["embedding_dropout"] = neox["hidden_dropout"] = 0.1;
  for (const Json& json : {gpt2, star, neox}) {
    EXPECT_EQ(CountDropouts(**ModelFromConfig(json, "f"), /*training=*/true, 0.1), 5) << json;
    EXPECT_EQ(CountDropouts(**ModelFromConfig(json, "f"), /*training=*/false, 0.1), 0) << json;
  }
  EXPECT_EQ((*ModelFromConfig(gpt2, "f"))->facts().training_notes.size(), 3u) << "and attention's is not applied";
}

TEST(ModelConfig, DropoutThatIsNotAppliedIsNoted) {
  const auto llama = With(LlamaJson(), "attention_dropout", 0.25);
  ASSERT_EQ((*llama)->facts().training_notes.size(), 1u);
  EXPECT_EQ((*llama)->facts().training_notes[0], "attention_dropout 0.25 of config.json is not applied in training");
  EXPECT_EQ((*With(OptJson(), "layerdrop", 0.5))->facts().training_notes.size(), 2u);
  ExpectRefused(LlamaJson(), "attention_dropout", "much", StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper::config_test
