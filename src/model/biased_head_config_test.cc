// Reading the config.json of families whose heads have a bias, Phi, GPT-J and CodeGen, and of those with layer norms of
// each head's q and k.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"
#include "model/families.h"
#include "model/model.h"

namespace temper::biased_head_config_test {
namespace {

Json PhiJson() {
  return Json::parse(R"({"architectures": ["PhiForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96})");
}
Json GptJson(const char* architecture) {
  Json json = Json::parse(R"({"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 6})");
  json["architectures"] = {architecture};
  return json;
}
Json OtherJson(const char* architecture) {
  Json json = Json::parse(R"({"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96})");
  json["architectures"] = {architecture};
  return json;
}

std::unique_ptr<Model> Read(const Json& config) {
  auto model = ModelFromConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

const WeightDeclaration* Find(const Model& model, const std::string& name) {
  const auto it = std::find_if(model.weights().begin(), model.weights().end(),
                               [&](const WeightDeclaration& w) { return w.name == name; });
  return it == model.weights().end() ? nullptr : &*it;
}

Attributes AttributesOf(const Model& model, Op op) {
  const Graph graph = model.Forward({.tokens = 8, .row = 8});
  for (const Node& node : graph.nodes()) {
    if (node.op == op) return node.attributes;
  }
  ADD_FAILURE() << ToString(op);
  return {};
}

void ExpectRefused(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  const auto model = ModelFromConfig(config, "config.json");
  ASSERT_FALSE(model.ok()) << key << " = " << value;
  EXPECT_NE(model.status().message().find(key), std::string::npos) << model.status().message();
}

// The bias lies as the words of the head do, does not decay, and begins at zero.
TEST(BiasedHead, IsAWeightOfItsOwnWhetherTheHeadIsTiedOrNot) {
  for (Json json : {PhiJson(), GptJson("GPTJForCausalLM"), GptJson("CodeGenForCausalLM")}) {
    for (const bool tied : {false, true}) {
      json["tie_word_embeddings"] = tied;
      const auto model = Read(json);
      const WeightDeclaration* const bias = Find(*model, "lm_head.bias");
      ASSERT_NE(bias, nullptr) << json;
      EXPECT_EQ(bias->shape, (Shape{100}));
      EXPECT_EQ(bias->labels, DimLabels{DimLabel::kVocab});
      EXPECT_EQ(bias->init, WeightDeclaration::Init::kZero);
      EXPECT_FALSE(bias->decays);
      EXPECT_EQ(bias->source.tensors().front().name, "lm_head.bias");
      EXPECT_TRUE(bias->source.tensors().front().aliases.empty());
      EXPECT_EQ(Find(*model, "lm_head.weight") == nullptr, tied);
      EXPECT_EQ(model->modules().back().path, "lm_head");
      EXPECT_TRUE(AttributesOf(*model, Op::kLinearCrossEntropy).Flag("bias"));
    }
  }
}

TEST(BiasedHead, LogitsOfADecodingStepHaveIt) {
  const Graph graph = Read(PhiJson())->Forward({.tokens = 2, .cache = 64, .sequences = 2});
  const Node& head = graph.nodes().back();
  ASSERT_EQ(head.op, Op::kLinear);
  EXPECT_TRUE(head.attributes.Flag("bias"));
  EXPECT_EQ(graph.value(head.inputs.back()).name, "lm_head.bias");
}

TEST(GptJ, TurnsTheFirstElementsOfEachHeadInPairs) {
  for (const char* architecture : {"GPTJForCausalLM", "CodeGenForCausalLM"}) {
    const auto model = Read(GptJson(architecture));
    EXPECT_EQ(std::get<std::vector<double>>(*AttributesOf(*model, Op::kRopeTable).Find("inv_freq")).size(), 3u);
    EXPECT_TRUE(AttributesOf(*model, Op::kRope).Flag("interleaved"));
    for (const int wrong : {0, 5, 18, -2}) ExpectRefused(GptJson(architecture), "rotary_dim", wrong);
    ExpectRefused(GptJson(architecture), "n_head", 5);
  }
}

// Rows of q, v and k for each of four devices.
TEST(CodeGen, ReadsQueriesValuesAndKeysOfEachDevice) {
  const auto model = Read(GptJson("CodeGenForCausalLM"));
  const std::string qkv = "transformer.h.0.attn.qkv_proj.weight";
  int64_t first = 0;
  for (const char* part : {"/q", "/v", "/k"}) {
    const WeightDeclaration* const w = Find(*model, qkv + part);
    ASSERT_NE(w, nullptr) << part;
    ASSERT_EQ(w->source.boxes().size(), 4u);
    for (int64_t device = 0; device < 4; ++device) {
      const WeightSource::Box& box = w->source.boxes()[static_cast<size_t>(device)];
      EXPECT_EQ(box.rows, 16);
      EXPECT_EQ(box.begin[0], device * 48 + first) << part;
    }
    first += 16;
  }
  Json odd = GptJson("CodeGenForCausalLM");
  odd["n_head"] = 1;
  odd["rotary_dim"] = 2;
  ExpectRefused(odd, "n_embd", 66);
}

TEST(HeadNorms, ShareTheirScalesOrHaveTheirOwn) {
  Json phi = PhiJson(), persimmon = OtherJson("PersimmonForCausalLM");
  phi["qk_layernorm"] = true;
  for (const auto& [json, layer] :
       {std::pair(phi, "model.layers.1.self_attn."), {persimmon, "model.layers.1.self_attn."}}) {
    const auto model = Read(json);
    for (const char* name : {"q_layernorm.weight", "k_layernorm.weight", "q_layernorm.bias", "k_layernorm.bias"}) {
      const WeightDeclaration* const w = Find(*model, std::string(layer) + name);
      ASSERT_NE(w, nullptr) << name;
      EXPECT_EQ(w->shape, (Shape{16}));
      EXPECT_FALSE(w->decays);
    }
  }
  persimmon["qk_layernorm"] = false;
  EXPECT_EQ(Find(*Read(persimmon), "model.layers.1.self_attn.q_layernorm.weight"), nullptr);
  phi["head_dim"] = 8;
  ExpectRefused(phi, "head_dim", 8);

  Json cohere = OtherJson("CohereForCausalLM"), stable = OtherJson("StableLmForCausalLM");
  cohere["use_qk_norm"] = stable["qk_layernorm"] = true;
  const auto of_cohere = Read(cohere), of_stable = Read(stable);
  const WeightDeclaration* const q = Find(*of_cohere, "model.layers.0.self_attn.q_norm.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, (Shape{4, 16}));
  EXPECT_EQ(q->labels[0], DimLabel::kHeads);
  EXPECT_EQ(q->source.tensors().size(), 1u);
  const WeightDeclaration* const k = Find(*of_stable, "model.layers.0.self_attn.k_layernorm.norms");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->shape, (Shape{2, 16}));
  EXPECT_EQ(k->labels[0], DimLabel::kKvHeads);
  ASSERT_EQ(k->source.tensors().size(), 2u);
  EXPECT_EQ(k->source.tensors()[1].name, "model.layers.0.self_attn.k_layernorm.norms.1.weight");
  EXPECT_EQ(k->source.tensors()[1].shape, (Shape{16}));
}

}  // namespace
}  // namespace temper::biased_head_config_test
