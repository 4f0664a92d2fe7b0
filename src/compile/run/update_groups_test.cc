#include "compile/run/update_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "compile/run/run_frame.h"
#include "graph/named_ops.h"
#include "model/families.h"

namespace temper::update_groups_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}

std::unique_ptr<Model> Llama() {
  return Must(ModelFromConfig(Json{{"architectures", {"LlamaForCausalLM"}},
                                   {"vocab_size", 64},
                                   {"hidden_size", 16},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 2},
                                   {"intermediate_size", 32},
                                   {"max_position_embeddings", 64},
                                   {"tie_word_embeddings", false}},
                              "config.json"));
}

RunConfig ConfigOf(TrainMethod method) {
  RunConfig config;
  config.model.model = "config.json";
  config.model.method = method;
  config.model.dtype = ComputeType::kF32;
  config.data.max_seq_len = 16;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.weight_decay = 0.1;
  return config;
}

// By the weight's name: {factor of the rate, decay}.
using Updates = std::map<std::string, std::pair<double, double>>;
Updates UpdatesOf(const RunConfig& given) {
  const RunConfig config = Must(Resolve(given, {.today = "2026-01-01"})).config;
  Graph forward = Must(AdaptedForward(*Llama(), config));
  UpdateSpec spec = UpdateSpecOf(config.optimizer);
  AssignUpdateGroups(config.optimizer, &forward, &spec);
  Updates updates;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& value = forward.value(id);
    if (!value.trainable) continue;
    const UpdateGroup group = spec.Of(value);
    updates[value.name] = {group.lr_factor, value.decays ? group.weight_decay : 0};
  }
  return updates;
}

const std::string kInLayer = "base_model.model.model.layers.0.";

TEST(UpdateGroups, TheRateOfBIsTheRatioTimesThatOfAAsInPeft) {
  RunConfig config = ConfigOf(TrainMethod::kLora);
  config.lora.target_modules = std::vector<std::string>{"q_proj"};
  config.lora.modules_to_save = std::vector<std::string>{"lm_head", "model.norm"};
  config.optimizer.lora_plus_ratio = 16;
  EXPECT_EQ(UpdatesOf(config), (Updates{{kInLayer + "self_attn.q_proj.lora_A.weight", {1, 0.1}},
                                        {kInLayer + "self_attn.q_proj.lora_B.weight", {16, 0.1}},
                                        {"base_model.model.lm_head.weight", {1, 0.1}},
                                        {"base_model.model.model.norm.weight", {16, 0}}}));
}

TEST(UpdateGroups, TheFirstGroupOfAModuleCounts) {
  RunConfig config = ConfigOf(TrainMethod::kLora);
  config.lora.target_modules = std::vector<std::string>{"q_proj", "v_proj"};
  config.lora.modules_to_save = std::vector<std::string>{"lm_head"};
  config.optimizer.lora_plus_ratio = 4;
  config.optimizer.groups = {{.modules = {"lm_head"}, .learning_rate = 1e-4, .weight_decay = 0},
                             {.modules = {"v_proj", "lm_head"}, .learning_rate = 2e-3}};
  EXPECT_EQ(UpdatesOf(config), (Updates{{kInLayer + "self_attn.q_proj.lora_A.weight", {1, 0.1}},
                                        {kInLayer + "self_attn.q_proj.lora_B.weight", {4, 0.1}},
                                        {kInLayer + "self_attn.v_proj.lora_A.weight", {2, 0.1}},
                                        {kInLayer + "self_attn.v_proj.lora_B.weight", {8, 0.1}},
                                        {"base_model.model.lm_head.weight", {0.1, 0}}}));
}

TEST(UpdateGroups, FullFineTuningHasGroupsToo) {
  RunConfig config = ConfigOf(TrainMethod::kFull);
  config.optimizer.groups = {{.modules = {"embed_tokens", "norm"}, .learning_rate = 5e-4, .weight_decay = 0.3}};
  const Updates updates = UpdatesOf(config);
  EXPECT_EQ(updates.at("model.embed_tokens.weight"), std::pair(0.5, 0.3));
  EXPECT_EQ(updates.at("model.norm.weight"), std::pair(0.5, 0.0)) << "vectors do not decay";
  EXPECT_EQ(updates.at("model.layers.0.input_layernorm.weight"), std::pair(1.0, 0.0)) << "another name";
  EXPECT_EQ(updates.at("lm_head.weight"), std::pair(1.0, 0.1));
}

// The names of values that the optimizer leaves to AdamW.
std::vector<std::string> LeftToAdamw(const RunConfig& given) {
  const RunConfig config = Must(Resolve(given, {.today = "2026-01-01"})).config;
  Graph forward = Must(AdaptedForward(*Llama(), config));
  UpdateSpec spec = UpdateSpecOf(config.optimizer);
  AssignUpdateGroups(config.optimizer, &forward, &spec);
  std::vector<std::string> left;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& value = forward.value(id);
    if (!value.trainable) continue;
    const UpdateRule& rule = spec.RuleOf(spec.Of(value));
    TEMPER_CHECK(&rule == config.optimizer.rule || rule.name == "adamw");
    if (rule.name == "adamw") left.push_back(value.name);
  }
  std::sort(left.begin(), left.end());
  return left;
}

// Hidden 16: the head has 1024 elements, the MLP's matrices 512.
TEST(UpdateGroups, ValuesThatAnOptimizerDoesNotTakeAreAdamws) {
  RunConfig config = ConfigOf(TrainMethod::kFull);
  config.optimizer.rule = UpdateRuleOf(Op::kMuon);
  EXPECT_EQ(
      LeftToAdamw(config),
      (std::vector<std::string>{"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                                "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"}));
  config.optimizer.rule = UpdateRuleOf(Op::kAdamw8bit);
  EXPECT_EQ(LeftToAdamw(config).size(), 12u) << "all are small";
  const auto takes = [&](const UpdatedValue& value) { return config.optimizer.rule->takes(value); };
  EXPECT_TRUE(takes({.shape = {64, 64}}));
  EXPECT_FALSE(takes({.shape = {64, 63}}));
  EXPECT_TRUE(takes({.shape = {4096}})) << "a vector";
  EXPECT_FALSE(takes({.shape = {64, 64}, .is_table = true}));
}

// The settings of AdamW are a run's beside those of its optimizer; both fill in their scalars.
TEST(UpdateGroups, TheOtherValuesHaveAdamwsSettings) {
  RunConfig config = ConfigOf(TrainMethod::kFull);
  config.optimizer.rule = UpdateRuleOf(Op::kMuon);
  config.optimizer.settings.Set("muon_momentum", 0.9);
  config.optimizer.settings.Set("adam_beta1", 0.5);
  const RunConfig resolved = Must(Resolve(config, {.today = "2026-01-01"})).config;
  Graph forward = Must(AdaptedForward(*Llama(), resolved));
  UpdateSpec spec = UpdateSpecOf(resolved.optimizer);
  AssignUpdateGroups(resolved.optimizer, &forward, &spec);
  const UpdateGroup group = spec.Of(forward.value(forward.FindSource("model.norm.weight")));
  EXPECT_TRUE(group.of_the_others);
  EXPECT_EQ(spec.SettingsOf(group).Double("beta1"), 0.5);
  EXPECT_EQ(spec.settings.Double("momentum"), 0.9);
  double scalars[kNumScalars] = {};
  spec.FillScalars(2, scalars);
  EXPECT_EQ(scalars[kScalarBiasCorrection1], 0.75);
}

TEST(UpdateGroups, NamesThatDecideNothingAreTold) {
  RunConfig config = ConfigOf(TrainMethod::kLora);
  config.optimizer.groups = {{.modules = {"lm_haed", "q_proj"}, .learning_rate = 1e-4},
                             {.modules = {"q_proj", "up_proj"}, .weight_decay = 0}};
  const std::vector<std::string> idle = Must(IdleSettings(*Llama(), config));
  ASSERT_EQ(idle.size(), 2u);
  EXPECT_NE(idle[0].find("'lm_haed' has no effect"), std::string::npos) << idle[0];
  EXPECT_NE(idle[1].find("'q_proj' has no effect"), std::string::npos) << idle[1];
}

}  // namespace
}  // namespace temper::update_groups_test
