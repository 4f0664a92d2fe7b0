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
  s.norm = DecoderSpec::Norm::kLayer;
  s.norm_eps = 1e-5;  // torch.nn.LayerNorm's default: the class has layer_norm_eps, and does not compute with it
  s.names = {.prefix = "biogpt.",
             .positions = "embed_positions",
             .final_norm = "layer_norm",
             .attention_out = "out_proj",
             .up = "fc1",
             .down = "fc2",
             .head = "output_projection"};
  s.attention_norm = "self_attn_layer_norm";
  s.mlp_norm = "final_layer_norm";
  s.qkv_bias = s.attention_out_bias = s.mlp_bias = true;
  s.facts.positions_are_learned = true;
  s.position_offset = 2;
  TEMPER_ASSIGN_OR_RETURN(const bool scaled, BoolOr(config, "scale_embedding", true, where));
  if (scaled) s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.scales_in_embedding = true;
  TEMPER_ASSIGN_OR_RETURN(s.attention_out_dropout, ReadDropout(config, "hidden_dropout_prob", 0.1, where, &s.facts));
  s.mlp_out_dropout = s.embedding_dropout = s.attention_out_dropout;
  TEMPER_ASSIGN_OR_RETURN(s.mlp_dropout, ReadDropout(config, "activation_dropout", 0, where, &s.facts));
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "layerdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
