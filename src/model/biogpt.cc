// BioGPT (Luo et al. 2022; transformers, BioGptForCausalLM): layer norms before each part, learned positions with
// OPT's offset, scaled embeddings, an MLP without gate.
#include <cmath>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadBioGpt(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "BioGptForCausalLM",
                                                     {.keys = {.attention_dropout = "attention_probs_dropout_prob"},
                                                      .vocab = 42384,
                                                      .hidden = 1024,
                                                      .ffn = 4096,
                                                      .blocks = 24,
                                                      .heads = 16,
                                                      .max_positions = 1024,
                                                      .attention_dropout = 0.1,
                                                      .activation = "gelu",
                                                      .gated = false,
                                                      .tied = true,
                                                      .plain_heads = true,
                                                      .rotary = false},
                                                     where));
  // torch.nn.LayerNorm's default: the class has layer_norm_eps, and does not compute with it.
  s.SetNorm({NormKind::kLayer, 1e-5});
  s.names = {
      .prefix = "biogpt.", .positions = "embed_positions", .final_norm = "layer_norm", .head = "output_projection"};
  s.NameNorms({.mixer = "self_attn_layer_norm", .feed_forward = "final_layer_norm"});
  for (AttentionSpec* const a : s.attentions()) {
    a->out = "out_proj";
    a->qkv_bias = a->out_bias = true;
  }
  s.facts.positions_are_learned = true;
  s.position_offset = 2;
  TEMPER_ASSIGN_OR_RETURN(const bool scaled, BoolOr(config, "scale_embedding", true, where));
  if (scaled) s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.scales_in_embedding = true;
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "hidden_dropout_prob", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.mixer_out_dropout = block.feed_forward_out_dropout = s.embedding_dropout;
  }
  TEMPER_ASSIGN_OR_RETURN(const double dropout, ReadDropout(config, "activation_dropout", 0, where, &s.facts));
  for (MlpSpec* const m : s.mlps()) {
    m->up = "fc1";
    m->down = "fc2";
    m->bias = true;
    m->dropout = dropout;
  }
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "layerdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
