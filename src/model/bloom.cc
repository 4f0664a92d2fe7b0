// BLOOM, 560M to 176B (BigScience 2022; transformers, BloomForCausalLM): layer norms, also of embeddings, ALiBi in the
// place of positions, an MLP without gate; q, k and v in one tensor, head by head.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/alibi.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadBloom(const Json& file, const std::string& where) {
  Json config = WithOwnKeys(file, {{"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"}});
  if (config.contains("n_embed") && !config["n_embed"].is_null()) config["hidden_size"] = config["n_embed"];
  config.erase("intermediate_size");  // which the class has not
  config.erase("hidden_act");
  config["max_position_embeddings"] = 2048;  // of all that are published; slopes go on
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s, ReadDecoder(config, "BloomForCausalLM",
                                 {.keys = {.blocks = "n_layer", .heads = "n_head", .norm_eps = "layer_norm_epsilon"},
                                  .vocab = 250880,
                                  .hidden = 64,
                                  .blocks = 2,
                                  .heads = 8,
                                  .max_positions = 2048,
                                  .norm_eps = 1e-5,
                                  .activation = "gelu_new",
                                  .gated = false,
                                  .tied = true,
                                  .plain_heads = true,
                                  .rotary = false},
                                 where));
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "transformer.",
             .embedding = "word_embeddings",
             .blocks = "h.",
             .final_norm = "ln_f",
             .embedding_norm = "word_embeddings_layernorm"};
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "self_attention.";
    a->qkv = "query_key_value";
    a->out = "dense";
    a->fused_qkv = a->qkv_by_kv_head = true;
    a->qkv_bias = a->out_bias = true;
    a->slopes = AlibiSlopes(a->heads);
    for (double& slope : a->slopes) slope *= std::sqrt(static_cast<double>(a->head_dim));  // before scores are scaled
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.dense_h_to_4h";
    m->down = "mlp.dense_4h_to_h";
    m->bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const bool in_sums, BoolOr(config, "apply_residual_connection_post_layernorm", false, where));
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.norms.in_sums = in_sums;
    block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  }
  s.gguf = {.name = "bloom",
            .activation = Activation::kGeluTanh,
            .out_bias = true,
            .mlp_bias = true,
            .alibi = true,
            .fused_qkv = true,
            .embedding_norm = "token_embd_norm"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
