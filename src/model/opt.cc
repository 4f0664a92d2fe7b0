// OPT, 125m to 66b (Zhang et al. 2022; transformers, OPTForCausalLM): layer norms, learned positions offset by 2, ReLU
// (or GELU) blocks with biases. 350m differs: norms after the residual, and embeddings narrower than the blocks.
#include <fmt/core.h>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadOpt(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadDecoder(config, "OPTForCausalLM",
                  {.keys = {.ffn = "ffn_dim", .activation = "activation_function", .initializer_range = "init_std"},
                   .vocab = 50272,
                   .hidden = 768,
                   .ffn = 3072,
                   .blocks = 12,
                   .heads = 12,
                   .max_positions = 2048,
                   .activation = "relu",
                   .gated = false,
                   .tied = true,
                   .plain_heads = true,
                   .rotary = false},
                  where));
  s.norm_eps = 1e-5;  // torch.nn.LayerNorm's default, which OPT does not change
  s.names = {.prefix = "model.decoder.",
             .positions = "embed_positions",
             .final_norm = "final_layer_norm",
             .attention_out = "out_proj",
             .up = "fc1",
             .down = "fc2"};
  s.attention_norm = "self_attn_layer_norm";
  s.mlp_norm = "final_layer_norm";
  s.facts.positions_are_learned = true;
  s.position_offset = 2;  // rows 0 and 1 are relics of fairseq's padding
  TEMPER_ASSIGN_OR_RETURN(s.embed, IntOr(config, "word_embed_proj_dim", s.hidden, where));
  if (!IsSane(s.embed, kMaxWidth)) return Corrupt(fmt::format("{}: word_embed_proj_dim is {}", where, s.embed));
  TEMPER_ASSIGN_OR_RETURN(const bool pre_norm, BoolOr(config, "do_layer_norm_before", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool removed, BoolOr(config, "_remove_final_layer_norm", false, where));
  s.norms_after_sums = !pre_norm;
  if (!pre_norm || removed) s.names.final_norm = "";
  TEMPER_ASSIGN_OR_RETURN(const bool affine, BoolOr(config, "layer_norm_elementwise_affine", true, where));
  s.norm = affine ? DecoderSpec::Norm::kLayer : DecoderSpec::Norm::kLayerPlain;
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "enable_bias", true, where));
  s.attention_out_bias = s.mlp_bias = s.qkv_bias;
  // transformers' own default, for a file that lacks the key.
  TEMPER_ASSIGN_OR_RETURN(s.attention_out_dropout, ReadDropout(config, "dropout", 0.1, where, &s.facts));
  s.mlp_out_dropout = s.attention_out_dropout;
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "layerdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
