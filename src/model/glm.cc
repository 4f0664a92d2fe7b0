// GLM-4 9B (GLM team 2024; transformers, GlmForCausalLM): biases on q, k and v, gate
// and up in one tensor, a rotary embedding of half of each head, in interleaved pairs.
// GLM-4-0414 (2025; Glm4ForCausalLM): also norms on the outputs of attention and MLP.
#include "model/decoder.h"
#include "model/families.h"

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

}  // namespace temper
