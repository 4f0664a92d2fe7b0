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
  s.names = {.prefix = "model.decoder.", .positions = "embed_positions", .final_norm = "final_layer_norm"};
  s.NameNorms({.mixer = "self_attn_layer_norm", .feed_forward = "final_layer_norm"});
  s.facts.positions_are_learned = true;
  s.position_offset = 2;  // rows 0 and 1 are relics of fairseq's padding
  TEMPER_ASSIGN_OR_RETURN(s.embed, IntOr(config, "word_embed_proj_dim", s.hidden, where));
  if (!IsSane(s.embed, kMaxWidth)) return Corrupt(fmt::format("{}: word_embed_proj_dim is {}", where, s.embed));
  TEMPER_ASSIGN_OR_RETURN(const bool pre_norm, BoolOr(config, "do_layer_norm_before", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool removed, BoolOr(config, "_remove_final_layer_norm", false, where));
  if (!pre_norm || removed) s.names.final_norm = "";
  TEMPER_ASSIGN_OR_RETURN(const bool affine, BoolOr(config, "layer_norm_elementwise_affine", true, where));
  // torch.nn.LayerNorm's default of eps, which OPT does not change.
  s.SetNorm({affine ? NormKind::kLayer : NormKind::kLayerPlain, 1e-5});
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "enable_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->out = "out_proj";
    a->qkv_bias = a->out_bias = bias;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "fc1";
    m->down = "fc2";
    m->bias = bias;
  }
  // transformers' own default, for a file that lacks the key.
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "dropout", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.norms.after_sums = !pre_norm;
    block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  }
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "layerdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
