// Adapters on parameters of modules that are not linear (PEFT's target_parameters): experts and routers.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/lora.h"
#include "model/lora_parameters.h"
#include "model/model.h"

namespace temper::lora_parameters_test {
namespace {

using Names = std::vector<std::string>;

std::unique_ptr<Model> Read(const char* text) {
  return std::move(*ModelFromConfig(Json::parse(text), "f"));
}
// The first of two blocks has an MLP.
std::unique_ptr<Model> Mixed() {
  return Read(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48, "moe_intermediate_size": 8,
      "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0]})");
}
std::unique_ptr<Model> Mixtral() {
  return Read(R"({"architectures": ["MixtralForCausalLM"], "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48})");
}

std::map<std::string, LoraModule> Resolved(const Model& model, const LoraConfig& config) {
  const auto targets = ResolveLora(model.modules(), config);
  EXPECT_TRUE(targets.ok()) << targets.status().message();
  std::map<std::string, LoraModule> by_path;
  if (targets.ok()) {
    for (const LoraModule& m : *targets) by_path.emplace(m.path, m);
  }
  return by_path;
}
std::string ErrorOf(const Model& model, const LoraConfig& config) {
  const auto targets = ResolveLora(model.modules(), config);
  EXPECT_FALSE(targets.ok());
  return targets.status().message();
}

const std::string kMlp = "model.layers.1.mlp.";

// PEFT then leaves the MLPs of other blocks out, whose modules have the same names.
TEST(LoraParameters, AllLinearMeansExpertsAndRoutersToo) {
  const auto of = Resolved(*Mixed(), {.r = 4, .alpha = 8});
  EXPECT_EQ(of.size(), 2u * 4 + 3);
  const LoraModule &gate_up = of.at(kMlp + "experts.gate_up_proj"), &down = of.at(kMlp + "experts.down_proj"),
                   &router = of.at(kMlp + "gate.weight");
  EXPECT_EQ(gate_up.r, 8) << "as large as those of gate and up together";
  EXPECT_EQ(gate_up.scale, 2);
  EXPECT_EQ(gate_up.ranks(), 32);
  EXPECT_EQ(gate_up.out, 16);
  ASSERT_EQ(gate_up.parts.size(), 2u);
  EXPECT_EQ(down.r, 4);
  EXPECT_EQ(down.ranks(), 16);
  EXPECT_EQ(router.ranks(), 4);
  EXPECT_EQ(router.out, 4);
}

// The adapter of a module's later parameter wraps that of the one before.
TEST(LoraParameters, AreStoredUnderTheModuleThatHasThem) {
  const auto both = Resolved(*Mixed(), {.target_modules = Names{"gate_proj", "up_proj", "down_proj", "gate"}});
  EXPECT_EQ(both.at(kMlp + "experts.gate_up_proj").stored_path(), kMlp + "experts.base_layer");
  EXPECT_EQ(both.at(kMlp + "experts.down_proj").stored_path(), kMlp + "experts");
  EXPECT_EQ(both.at(kMlp + "gate.weight").stored_path(), kMlp + "gate");
  const auto one = Resolved(*Mixed(), {.target_modules = Names{}, .target_parameters = Names{"experts.gate_up_proj"}});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.begin()->second.stored_path(), kMlp + "experts");
  EXPECT_EQ(one.begin()->second.r, 16) << "a parameter that is named itself has the rank of the settings";
}

TEST(LoraParameters, NamesOfOlderClassesBecomeThoseOfParameters) {
  const LoraConfig older{.r = 4, .alpha = 8, .target_modules = Names{"q_proj", "w1", "w3", "w2"}};
  const auto config = WithParameters(Mixtral()->modules(), older);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->target_names(), Names{"q_proj"});
  EXPECT_EQ(config->parameter_names(), (Names{"down_proj", "gate_up_proj"}));
  EXPECT_EQ(config->rank_pattern, (std::vector<std::pair<std::string, int64_t>>{{".*\\.gate_up_proj", 8}}));
  EXPECT_EQ(config->alpha_pattern, (std::vector<std::pair<std::string, double>>{{".*\\.gate_up_proj", 16}}));
  EXPECT_EQ(*WithParameters(Mixtral()->modules(), *config), *config) << "what was converted stays";
  const std::string error = ErrorOf(*Mixtral(), {.target_modules = Names{"w1", "w2"}});
  EXPECT_NE(error.find("w1 and not w3"), std::string::npos) << error;
}

TEST(LoraParameters, AnExpressionMeansThoseThatItMatches) {
  const auto attention = Resolved(*Mixed(), {.target_modules = R"(.*\.(q|v)_proj)"});
  EXPECT_EQ(attention.size(), 4u);
  const auto experts = Resolved(*Mixed(), {.target_modules = R"(.*experts\.(gate|up)_proj)"});
  ASSERT_EQ(experts.size(), 1u);
  EXPECT_EQ(experts.begin()->first, kMlp + "experts.gate_up_proj");
}

// PEFT leaves out what is excluded or trained in full when it resolves an expression, under the older names, too.
TEST(LoraParameters, WhatAnExpressionMeansCanBeExcluded) {
  const std::string text = R"(.*\.(q_proj|w1|w2|w3))";
  for (const LoraConfig::Modules& excluded :
       {LoraConfig::Modules(Names{"w1", "w2", "w3"}), LoraConfig::Modules(R"(.*experts.*)")}) {
    const auto of = Resolved(*Mixtral(), {.target_modules = text, .exclude_modules = excluded});
    ASSERT_EQ(of.size(), 1u);
    EXPECT_EQ(of.begin()->first, "model.layers.0.self_attn.q_proj");
  }
  EXPECT_EQ(Resolved(*Mixtral(), {.target_modules = text, .modules_to_save = Names{"experts"}}).size(), 1u);
  EXPECT_EQ(Resolved(*Mixtral(), {.target_modules = text}).size(), 3u);
}

// Its names would apply to all layers. An adapter's file is read as it is.
TEST(LoraParameters, AnExpressionOfSomeLayersIsRefused) {
  for (const char* text : {R"(.*layers\.1\.self_attn\.q_proj)", R"(.*layers\.0\.mlp\.(gate_proj|up_proj|down_proj))"}) {
    const std::string error = ErrorOf(*Mixed(), {.target_modules = text});
    EXPECT_NE(error.find("in all layers"), std::string::npos) << error;
    EXPECT_TRUE(ResolveLora(Mixed()->modules(), {.target_modules = text}, "adapter_config.json").ok());
  }
}

TEST(LoraParameters, SettingsThatDoNotReachThemAreReported) {
  const auto idle = [](const LoraConfig& config) {
    const auto lines = IdleLoraSettings(Mixed()->modules(), config);
    EXPECT_TRUE(lines.ok()) << lines.status().message();
    return lines.ok() && !lines->empty() ? lines->front() : "";
  };
  EXPECT_NE(idle({.exclude_modules = Names{"gate_up_proj"}}).find("leave theirs out"), std::string::npos);
  EXPECT_NE(idle({.layers_to_transform = {0}}).find("of all layers"), std::string::npos);
  EXPECT_NE(idle({.target_parameters = Names{"down_proj"}}).find("has no effect"), std::string::npos);
  EXPECT_EQ(idle({.target_modules = Names{}, .target_parameters = Names{"down_proj"}}), "");
}

TEST(LoraParameters, AParameterAmongModulesIsToldWhereItBelongs) {
  const std::string error = ErrorOf(*Mixed(), {.target_modules = Names{"q_proj", "gate_up_proj"}});
  EXPECT_NE(error.find("name it in target_parameters"), std::string::npos) << error;
  EXPECT_NE(error.find("gate.weight"), std::string::npos) << error;
}

TEST(LoraParameters, ARankOfAnotherToolsFileDoesNotOverflow) {
  const auto targets = ResolveLora(Mixed()->modules(), {.r = int64_t{1} << 62}, "adapter_config.json");
  ASSERT_FALSE(targets.ok());
  EXPECT_NE(targets.status().message().find("4611686018427387904"), std::string::npos) << targets.status().message();
}

TEST(LoraParameters, TakeNoDropout) {
  const std::string error = ErrorOf(*Mixed(), {.dropout = 0.1});
  EXPECT_NE(error.find("dropout is 0.1"), std::string::npos) << error;
  EXPECT_FALSE(Resolved(*Mixed(), {.dropout = 0.1, .target_modules = Names{"q_proj"}}).empty());
}

TEST(LoraParameters, ANameThatNoParameterHasIsRefused) {
  const std::string error = ErrorOf(*Mixed(), {.target_modules = Names{"q_proj"}, .target_parameters = Names{"up"}});
  EXPECT_NE(error.find("'up'"), std::string::npos) << error;
  EXPECT_NE(error.find("gate_up_proj"), std::string::npos) << error;
}

}  // namespace
}  // namespace temper::lora_parameters_test
