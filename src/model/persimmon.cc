// Persimmon 8B (Adept 2023; transformers, PersimmonForCausalLM): layer norms, also of each head's q and k, an MLP
// without gate, a rotary embedding of half of each head; q, k and v in one tensor, head by head.
#include <fmt/core.h>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadPersimmon(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "PersimmonForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 262144,
                                                      .hidden = 4096,
                                                      .ffn = 16384,
                                                      .blocks = 36,
                                                      .heads = 64,
                                                      .max_positions = 16384,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2",
                                                      .gated = false,
                                                      .plain_heads = true,
                                                      .rope = {.partial = 0.5}},
                                                     where));
  // The class rotates by this key and cuts heads by the sizes: files that differ are broken there, too.
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  s.SetNorm(NormKind::kLayer);
  s.names.final_norm = "final_layernorm";
  s.facts.ignored = {".rotary_emb.inv_freq"};
  TEMPER_ASSIGN_OR_RETURN(const bool qk_norm, BoolOr(config, "qk_layernorm", true, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv = "query_key_value";
    a->out = "dense";
    a->fused_qkv = a->qkv_by_kv_head = true;
    a->qkv_bias = a->out_bias = true;
    if (qk_norm) a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->q_norm = "q_layernorm";
    a->k_norm = "k_layernorm";
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.dense_h_to_4h";
    m->down = "mlp.dense_4h_to_h";
    m->bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.feed_forward_out_dropout = p;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
