// GLM-4 9B (GLM team 2024; transformers, GlmForCausalLM): biases on q, k and v, gate
// and up in one tensor, a rotary embedding of half of each head, in interleaved pairs.
// GLM-4-0414 (2025; Glm4ForCausalLM): also norms on the outputs of attention and MLP.
// GLM-4.5 to 4.7 and Air (2025; Glm4MoeForCausalLM): Llama's blocks, half of each head turns; experts in all blocks but
// the first ones, chosen by logistic scores and a bias, beside an MLP of all tokens.
// GLM-4.7 Flash (2026; Glm4MoeLiteForCausalLM): the same with DeepSeek-V3's latent attention.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "model/families.h"
#include "model/latent.h"
#include "model/mixture.h"

namespace temper {
namespace {

constexpr char kBias[] = "mlp.gate.e_score_correction_bias";

Result<DecoderSpec> Read(const Json& config, const char* architecture, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture,
                                                     {.vocab = 151552,
                                                      .hidden = 4096,
                                                      .ffn = 13696,
                                                      .blocks = 40,
                                                      .heads = 32,
                                                      .max_positions = 131072,
                                                      .kv_heads = 2,
                                                      .head_dim = 128,
                                                      .norm_eps = 1.5625e-7,
                                                      .rope = {.partial = 0.5}},
                                                     where));
  for (MlpSpec* const m : s.mlps()) m->fused_gate_up = true;
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = bias;
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGlm(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, Read(config, "GlmForCausalLM", where));
  s.gguf = {.name = "chatglm", .interleaved = true, .fused_gate_up = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGlm4(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, Read(config, "Glm4ForCausalLM", where));
  s.NameNorms({.mixer_out = "post_self_attn_layernorm", .feed_forward_out = "post_mlp_layernorm"});
  s.gguf = {.name = "glm4", .interleaved = true, .fused_gate_up = true, .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGlm4Moe(const Json& config, const std::string& where) {
  // A type that transformers computes by this class, with other names and values of keys.
  if (const auto type = config.find("model_type"); type != config.end() && *type == "sarvam_moe") {
    return Unsupported(where + ": model_type sarvam_moe is not supported");
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Glm4MoeForCausalLM",
                                                     {.vocab = 151552,
                                                      .hidden = 4096,
                                                      .ffn = 10944,
                                                      .blocks = 46,
                                                      .heads = 96,
                                                      .max_positions = 131072,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.partial = 0.5}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool normed, BoolOr(config, "use_qk_norm", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = bias;
    if (normed) a->qk_norm = AttentionSpec::QkNorm::kHeads;
  }
  TEMPER_ASSIGN_OR_RETURN(
      ExpertsSpec experts,
      ReadUnbalancedExperts(config, {.experts = 128, .active = 8, .ffn = 1408, .choice_bias = kBias, .shared_gate = ""},
                            where, &s));
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared_ffn, SetBiasedChoice(config, where, &experts));
  s.facts.balanced_by_bias = true;
  TEMPER_RETURN_IF_ERROR(SetExpertsBehindDense(config, 1, experts, shared_ffn, where, &s));
  s.gguf = {.name = "glm4moe",
            .any_head_dim = true,
            .ffn_norm = "post_attention_norm",
            .dense_first = true,
            .routes = true,
            .shared_experts = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGlm4MoeLite(const Json& file, const std::string& where) {
  const Json config = WithOwnKeys(file, {{"head_dim", "qk_rope_head_dim"}});
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s, ReadLatentDecoder(config, "Glm4MoeLiteForCausalLM",
                                       {.vocab = 154880,
                                        .hidden = 2048,
                                        .ffn = 10240,
                                        .blocks = 47,
                                        .heads = 20,
                                        .max_positions = 202752,
                                        .kv_heads = 20,
                                        .norm_eps = 1e-5},
                                       {.q_rank = 768, .kv_rank = 512, .head_dim = 192, .v_head_dim = 256}, where));
  TEMPER_ASSIGN_OR_RETURN(
      ExpertsSpec experts,
      ReadUnbalancedExperts(
          config, {.experts = 64, .active = 4, .ffn = 1536, .choice_bias = kBias, .scale = 1.8, .shared_gate = ""},
          where, &s));
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared_ffn, SetBiasedChoice(config, where, &experts));
  s.facts.balanced_by_bias = true;
  experts = WithSharedMlp(std::move(experts), shared_ffn, *s.mlps().front());
  const auto types = config.find("mlp_layer_types");
  const bool listed = types != config.end() && !types->is_null();
  if (listed && (!types->is_array() || types->size() != s.blocks.size())) {
    return Corrupt(fmt::format("{}: mlp_layer_types should be a list with an entry for each of the {} layers", where,
                               s.blocks.size()));
  }
  for (size_t b = 0; b < s.blocks.size(); ++b) {
    const bool sparse = listed ? (*types)[b] == "sparse" : b > 0;
    if (listed && !sparse && (*types)[b] != "dense") {
      return Unsupported(fmt::format("{}: layer {} of mlp_layer_types is {}; supported are dense and sparse", where, b,
                                     DumpJson((*types)[b]).substr(0, 40)));
    }
    if (sparse) s.blocks[b].feed_forward = experts;
  }
  s.facts.ignored.push_back(fmt::format(".layers.{}.", s.blocks.size()));  // drafts, which the class does not load
  s.gguf = LatentGguf();
  return MakeDecoder(std::move(s));
}

}  // namespace temper
