// DeepSeek-V2 and V2 Lite (2024; transformers, DeepseekV2ForCausalLM): Llama's blocks with latent attention; experts in
// all blocks but the first ones, chosen by their probability, beside an MLP of all tokens.
// DeepSeek-V3, R1, V3.1 (DeepseekV3ForCausalLM): experts are chosen by logistic scores and a bias, among groups.
// Sarvam 105B (model_type sarvam_mla) is the same class, with other defaults and names of keys.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/latent.h"
#include "model/mixture.h"

namespace temper {
namespace {

// Keys of the first published files, which transformers' classes pass over: refuses what those do not compute.
Status ExpectText(const Json& config, const char* key, const char* value, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string given, StringOr(config, key, value, where));
  if (given == value) return OkStatus();
  return Unsupported(fmt::format("{}: {} is '{}'; supported is {}", where, key, given.substr(0, 40), value));
}
Status ExpectExpertsInEveryLayer(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t every, IntOr(config, "moe_layer_freq", 1, where));
  if (every == 1) return OkStatus();
  return Unsupported(fmt::format("{}: moe_layer_freq is {}; supported is 1", where, every));
}

// The choice of DeepseekV2TopkRouter: by the softmax, among all experts or the groups with the best ones.
Status SetGreedyChoice(const Json& config, const std::string& where, ExpertsSpec* experts) {
  TEMPER_RETURN_IF_ERROR(ExpectText(config, "scoring_func", "softmax", where));
  TEMPER_ASSIGN_OR_RETURN(const bool normalise, BoolOr(config, "norm_topk_prob", false, where));
  if (normalise) {
    return Unsupported(where +
                       ": norm_topk_prob is true, which transformers' class does not compute; supported is false");
  }
  TEMPER_RETURN_IF_ERROR(ReadExpertsScale(config, where, experts));
  TEMPER_ASSIGN_OR_RETURN(const std::string method, StringOr(config, "topk_method", "greedy", where));
  if (method == "group_limited_greedy") return ReadExpertGroups(config, where, /*least=*/1, experts);
  if (method == "greedy") return OkStatus();
  return Unsupported(fmt::format("{}: topk_method is '{}'; supported are greedy and group_limited_greedy", where,
                                 method.substr(0, 40)));
}

}  // namespace

Result<std::unique_ptr<Model>> ReadDeepseekV2(const Json& file, const std::string& where) {
  Json config = WithOwnKeys(file, {{"num_experts", "n_routed_experts"}});
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadLatentDecoder(
          config, "DeepseekV2ForCausalLM",
          {.vocab = 102400, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048},
          {.q_rank = 1536, .kv_rank = 512, .may_be_interleaved = false, .ignores_head_dim = true}, where));
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  TEMPER_RETURN_IF_ERROR(ExpectExpertsInEveryLayer(config, where));
  config.erase("num_local_experts");  // no key of this class
  TEMPER_ASSIGN_OR_RETURN(ExpertsSpec experts,
                          ReadUnbalancedExperts(config, {.experts = 64, .ffn = 1407, .shared_gate = ""}, where, &s));
  TEMPER_RETURN_IF_ERROR(SetGreedyChoice(config, where, &experts));
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared_ffn, ReadSharedExperts(config, where, 2, experts));
  TEMPER_RETURN_IF_ERROR(SetExpertsBehindDense(config, 0, experts, shared_ffn, where, &s));
  s.gguf = LatentGguf();
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadDeepseekV3(const Json& file, const std::string& where) {
  const auto type = file.find("model_type");
  const bool sarvam = type != file.end() && *type == "sarvam_mla";
  Json config = file;
  if (sarvam) {
    config = WithOwnKeys(file, {{"num_experts", "n_routed_experts"}, {"num_shared_experts", "n_shared_experts"}});
    for (const char* const key : {"rope_scaling", "rope_parameters"}) {
      if (!config.contains(key) || !config[key].is_object()) continue;
      for (const char* const name : {"type", "rope_type"}) {
        if (config[key].contains(name) && config[key][name] == "deepseek_yarn") config[key][name] = "yarn";
      }
    }
  }
  DecoderDefaults defaults{.vocab = 129280,
                           .hidden = 7168,
                           .ffn = 18432,
                           .blocks = 61,
                           .heads = 128,
                           .max_positions = 4096,
                           .kv_heads = 128};
  LatentDefaults latent{.q_rank = 1536, .kv_rank = 512};
  ExpertsSpec of_class{.experts = 256,
                       .active = 8,
                       .ffn = 2048,
                       .choice_bias = "mlp.gate.e_score_correction_bias",
                       .groups = 8,
                       .top_groups = 4,
                       .scale = 2.5,
                       .shared_gate = ""};
  if (sarvam) {
    defaults = {.vocab = 262144,
                .hidden = 4096,
                .ffn = 16384,
                .blocks = 32,
                .heads = 64,
                .max_positions = 4096,
                .initializer_range = 0.006};
    latent = {.kv_rank = 512, .ignores_head_dim = true};
    of_class.experts = 128;
    of_class.groups = of_class.top_groups = 0;
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLatentDecoder(config, "DeepseekV3ForCausalLM", defaults, latent, where));
  TEMPER_RETURN_IF_ERROR(ExpectExpertsInEveryLayer(config, where));
  TEMPER_RETURN_IF_ERROR(ExpectText(config, "scoring_func", "sigmoid", where));
  TEMPER_RETURN_IF_ERROR(ExpectText(config, "topk_method", "noaux_tc", where));
  TEMPER_ASSIGN_OR_RETURN(ExpertsSpec experts, ReadUnbalancedExperts(config, of_class, where, &s));
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared_ffn, SetBiasedChoice(config, where, &experts));
  s.facts.balanced_by_bias = true;
  TEMPER_RETURN_IF_ERROR(SetExpertsBehindDense(config, sarvam ? 1 : 3, experts, shared_ffn, where, &s));
  s.gguf = LatentGguf();
  return MakeDecoder(std::move(s));
}

}  // namespace temper
