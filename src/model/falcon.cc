// Falcon, 7B to 180B (Almazrouei et al. 2023; transformers, FalconForCausalLM): layer norms, attention and MLP in
// parallel, an MLP without gate, rotary embeddings. 7B has one KV head and one norm for both parts, the others ("new
// decoder architecture") several KV heads and a norm for each part. q, k and v are in one tensor, by KV head.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadFalcon(const Json& file, const std::string& where) {
  Json config = file;
  if (config.contains("n_embed") && !config["n_embed"].is_null()) config["hidden_size"] = config["n_embed"];
  DecoderDefaults defaults{
      .keys = {.ffn = "ffn_hidden_size", .norm_eps = "layer_norm_epsilon", .activation = "activation"},
      .vocab = 65024,
      .hidden = 4544,
      .blocks = 32,
      .heads = 71,
      .max_positions = 2048,
      .norm_eps = 1e-5,
      .activation = "gelu",
      .gated = false,
      .tied = true,
      .plain_heads = true};
  TEMPER_ASSIGN_OR_RETURN(const int64_t hidden, IntOr(config, defaults.keys.hidden, defaults.hidden, where));
  defaults.ffn = IsSane(hidden, kMaxWidth) ? 4 * hidden : 0;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "FalconForCausalLM", defaults, where));
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  TEMPER_ASSIGN_OR_RETURN(const bool alibi, BoolOr(config, "alibi", false, where));
  if (alibi) return Unsupported(where + ": alibi (positions as a bias of attention scores) is not supported");
  s.norm = DecoderSpec::Norm::kLayer;
  s.names = {.prefix = "transformer.",
             .embedding = "word_embeddings",
             .blocks = "h.",
             .final_norm = "ln_f",
             .attention = "self_attention.",
             .fused_qkv = "query_key_value",
             .attention_out = "dense",
             .up = "mlp.dense_h_to_4h",
             .down = "mlp.dense_4h_to_h"};
  s.facts.ignored = {".rotary_emb.inv_freq"};
  s.fused_qkv = s.qkv_by_kv_head = true;
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "bias", false, where));
  s.attention_out_bias = s.mlp_bias = s.qkv_bias;

  TEMPER_ASSIGN_OR_RETURN(const bool newer, BoolOr(config, "new_decoder_architecture", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool multi_query, BoolOr(config, "multi_query", true, where));
  TEMPER_ASSIGN_OR_RETURN(s.parallel, BoolOr(config, "parallel_attn", true, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t kv_heads, IntOr(config, "num_kv_heads", s.heads, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t norms, IntOr(config, "num_ln_in_parallel_attn", newer ? 2 : 1, where));
  if (newer) {
    s.kv_heads = kv_heads;
    if (kv_heads <= 0 || s.heads % kv_heads != 0) {
      return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_kv_heads {}", where,
                                 s.heads, kv_heads));
    }
  } else {
    s.kv_heads = multi_query ? 1 : s.heads;
    if (!multi_query && kv_heads != s.heads) {
      return Corrupt(fmt::format("{}: num_kv_heads is {}, but without multi_query there are as many as heads ({})",
                                 where, kv_heads, s.heads));
    }
  }
  // The class does not run with other combinations.
  if (norms < 1 || norms > (newer ? 2 : 1) || (newer && !s.parallel)) {
    return Corrupt(
        fmt::format("{}: num_ln_in_parallel_attn is {} and parallel_attn {}, but FalconForCausalLM computes {}", where,
                    norms, s.parallel,
                    newer ? "1 or 2 norms with parallel_attn where new_decoder_architecture is true"
                          : "only 1 norm where new_decoder_architecture is false"));
  }
  if (s.parallel) {
    if (norms == 2) {
      s.attention_norm = "ln_attn";
      s.mlp_norm = "ln_mlp";
    } else {
      s.mlp_norm = "";
    }
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  if (p > 0 && s.parallel) {
    return Unsupported(where + ": hidden_dropout of the sum of attention and MLP is not supported; set it to 0");
  }
  s.mlp_out_dropout = p;
  if (!s.parallel) {
    // The class drops out of the output of attention, and of nothing else, with this probability.
    TEMPER_ASSIGN_OR_RETURN(s.attention_out_dropout, ReadDropout(config, "attention_dropout", 0, where, &s.facts));
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
