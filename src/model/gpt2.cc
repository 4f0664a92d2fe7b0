// GPT-2, 124M to 1.5B (Radford et al. 2019; transformers, GPT2LMHeadModel): layer norms, learned positions, an MLP
// without gate; q, k and v in one tensor, and weights in x out, as transformers' Conv1D has them.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadGpt2(const Json& file, const std::string& where) {
  // The class takes other families' names for its sizes, too.
  Json config = file;
  for (const auto& [usual, own] : {std::pair{"hidden_size", "n_embd"},
                                   {"num_hidden_layers", "n_layer"},
                                   {"num_attention_heads", "n_head"},
                                   {"max_position_embeddings", "n_positions"}}) {
    if (config.contains(usual) && !config.contains(own)) config[own] = config[usual];
  }
  DecoderDefaults defaults{.keys = {.hidden = "n_embd",
                                    .ffn = "n_inner",
                                    .blocks = "n_layer",
                                    .heads = "n_head",
                                    .max_positions = "n_positions",
                                    .norm_eps = "layer_norm_epsilon",
                                    .activation = "activation_function",
                                    .attention_dropout = "attn_pdrop"},
                           .vocab = 50257,
                           .hidden = 768,
                           .blocks = 12,
                           .heads = 12,
                           .max_positions = 1024,
                           .norm_eps = 1e-5,
                           .attention_dropout = 0.1,
                           .activation = "gelu_new",
                           .gated = false,
                           .tied = true,
                           .plain_heads = true,
                           .rotary = false};
  TEMPER_ASSIGN_OR_RETURN(const int64_t hidden, IntOr(config, defaults.keys.hidden, defaults.hidden, where));
  defaults.ffn = IsSane(hidden, kMaxWidth) ? 4 * hidden : 0;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "GPT2LMHeadModel", defaults, where));
  s.norm = DecoderSpec::Norm::kLayer;
  s.names = {.prefix = "transformer.",
             .embedding = "wte",
             .positions = "wpe",
             .blocks = "h.",
             .final_norm = "ln_f",
             .attention = "attn.",
             .fused_qkv = "c_attn",
             .attention_out = "c_proj",
             .up = "mlp.c_fc",
             .down = "mlp.c_proj"};
  s.attention_norm = "ln_1";
  s.mlp_norm = "ln_2";
  s.fused_qkv = s.transposed = true;
  s.qkv_bias = s.attention_out_bias = s.mlp_bias = true;
  s.init_by_depth = true;
  s.facts.ignored = {".attn.bias", ".attn.masked_bias"};
  s.facts.positions_are_learned = true;
  TEMPER_ASSIGN_OR_RETURN(const bool cross, BoolOr(config, "add_cross_attention", false, where));
  if (cross) return Unsupported(where + ": add_cross_attention (attention to an encoder) is not supported");
  // reorder_and_upcast_attn asks for scores and softmax in f32, which they are here anyway.
  TEMPER_ASSIGN_OR_RETURN(const bool scaled, BoolOr(config, "scale_attn_weights", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool by_layer, BoolOr(config, "scale_attn_by_inverse_layer_idx", false, where));
  for (size_t b = 0; b < s.blocks.size(); ++b) {
    const double scale = scaled ? 1 / std::sqrt(static_cast<double>(s.head_dim)) : 1;
    s.blocks[b].scale = by_layer ? scale / static_cast<double>(b + 1) : scale;
  }
  TEMPER_ASSIGN_OR_RETURN(s.dropout, ReadDropout(config, "resid_pdrop", 0.1, where, &s.facts));
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embd_pdrop", 0.1, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
