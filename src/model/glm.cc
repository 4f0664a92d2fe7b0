// GLM-4 9B (GLM team 2024; transformers, GlmForCausalLM): biases on q, k and v, gate
// and up in one tensor, a rotary embedding of half of each head, in interleaved pairs.
// GLM-4-0414 (2025; Glm4ForCausalLM): also norms on the outputs of attention and MLP.
// GLM-4.5 to 4.7 and Air (2025; Glm4MoeForCausalLM): Llama's blocks, half of each head turns; experts in all blocks but
// the first ones, chosen by logistic scores and a bias, beside an MLP of all tokens.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mixture.h"

namespace temper {
namespace {

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
  Json without_loss = config;  // the class has none that balances experts
  without_loss.erase("output_router_logits");
  without_loss.erase("router_aux_loss_coef");
  TEMPER_ASSIGN_OR_RETURN(ExpertsSpec experts, ReadExperts(without_loss, "moe_intermediate_size",
                                                           {.experts = 128,
                                                            .active = 8,
                                                            .ffn = 1408,
                                                            .choice_bias = "mlp.gate.e_score_correction_bias",
                                                            .shared_gate = ""},
                                                           where, &s, /*balance=*/0, "n_routed_experts"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared_ffn, SetBiasedChoice(config, where, &experts));
  s.facts.balanced_by_bias = true;
  if (shared_ffn > 0) {
    MlpSpec shared = *s.mlps().front();
    shared.ffn = shared_ffn;
    shared.gate = "mlp.shared_experts.gate_proj";
    shared.up = "mlp.shared_experts.up_proj";
    shared.down = "mlp.shared_experts.down_proj";
    experts.shared = std::move(shared);
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t dense, IntOr(config, "first_k_dense_replace", 1, where));
  if (dense < 0) return Corrupt(fmt::format("{}: first_k_dense_replace is {}, should not be negative", where, dense));
  for (size_t b = static_cast<size_t>(dense); b < s.blocks.size(); ++b) s.blocks[b].feed_forward = experts;
  s.facts.ignored.push_back(fmt::format(".layers.{}.", s.blocks.size()));  // drafts, which the class does not load
  return MakeDecoder(std::move(s));
}

}  // namespace temper
