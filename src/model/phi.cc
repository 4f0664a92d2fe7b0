// Phi 1, 1.5 and 2 (Gunasekar et al. 2023, Li et al. 2023; transformers, PhiForCausalLM): attention and MLP run in
// parallel behind one layer norm, an MLP without gate, a rotary embedding of a part of each head, and biases
// everywhere, also of the head.
#include <fmt/core.h>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadPhi(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "PhiForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 51200,
                                                      .hidden = 2048,
                                                      .ffn = 8192,
                                                      .blocks = 24,
                                                      .heads = 32,
                                                      .max_positions = 2048,
                                                      .norm_eps = 1e-5,
                                                      .activation = "gelu_new",
                                                      .gated = false,
                                                      .rope = {.partial = 0.5}},
                                                     where));
  s.SetNorm(NormKind::kLayer);
  s.names.final_norm = "final_layernorm";
  s.head_bias = true;
  s.facts.ignored = {".rotary_emb.inv_freq"};
  TEMPER_ASSIGN_OR_RETURN(const bool qk_norm, BoolOr(config, "qk_layernorm", false, where));
  // The class norms so many elements, whatever the heads have.
  if (qk_norm) TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = a->out_bias = true;
    a->out = "dense";
    if (qk_norm) a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->q_norm = "q_layernorm";
    a->k_norm = "k_layernorm";
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.fc1";
    m->down = "mlp.fc2";
    m->bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_pdrop", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.parallel = true;
    block.norms.feed_forward = "";
    block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  }
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embd_pdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
