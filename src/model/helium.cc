// Helium 1 (Kyutai 2025; transformers, HeliumForCausalLM): Llama's blocks, with a rotary embedding of interleaved
// pairs.
#include <fmt/core.h>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadHelium(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "HeliumForCausalLM",
                                                     {.vocab = 48000,
                                                      .hidden = 2560,
                                                      .ffn = 7040,
                                                      .blocks = 24,
                                                      .heads = 20,
                                                      .max_positions = 4096,
                                                      .kv_heads = 20,
                                                      .head_dim = 128,
                                                      .norm_eps = 1e-8,
                                                      .rope = {.theta = 100000}},
                                                     where));
  const AttentionSpec& attention = *s.attentions()[0];
  if (attention.heads * attention.head_dim != s.hidden) {
    return Corrupt(
        fmt::format("{}: num_attention_heads {} times head_dim {} should be hidden_size {}, as the output of "
                    "attention is as wide as the model in HeliumForCausalLM",
                    where, attention.heads, attention.head_dim, s.hidden));
  }
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
