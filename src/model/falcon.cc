// Falcon, 7B to 180B (Almazrouei et al. 2023; transformers, FalconForCausalLM): layer norms, attention and MLP in
// parallel, an MLP without gate, rotary embeddings. 7B has one KV head and one norm for both parts, the others ("new
// decoder architecture") several KV heads and a norm for each part. q, k and v are in one tensor, by KV head. Falcon
// RW, 1B and 7B: ALiBi in the place of rotary embeddings, a part after the other, biases.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/alibi.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadFalcon(const Json& file, const std::string& where) {
  Json config = file;
  if (config.contains("n_embed") && !config["n_embed"].is_null()) config["hidden_size"] = config["n_embed"];
  const DecoderDefaults defaults{
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
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "FalconForCausalLM", defaults, where));
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  TEMPER_ASSIGN_OR_RETURN(const bool alibi, BoolOr(config, "alibi", false, where));
  if (alibi) s.ropes.clear();
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "transformer.", .embedding = "word_embeddings", .blocks = "h.", .final_norm = "ln_f"};
  s.facts.ignored = {".rotary_emb.inv_freq"};
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "bias", false, where));

  TEMPER_ASSIGN_OR_RETURN(const bool newer, BoolOr(config, "new_decoder_architecture", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool multi_query, BoolOr(config, "multi_query", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool parallel, BoolOr(config, "parallel_attn", true, where));
  const int64_t heads = s.attentions()[0]->heads;
  TEMPER_ASSIGN_OR_RETURN(const int64_t kv_heads, IntOr(config, "num_kv_heads", heads, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t norms, IntOr(config, "num_ln_in_parallel_attn", newer ? 2 : 1, where));
  if (newer) {
    if (kv_heads <= 0 || heads % kv_heads != 0) {
      return Corrupt(fmt::format("{}: num_attention_heads {} must be a positive multiple of num_kv_heads {}", where,
                                 heads, kv_heads));
    }
  } else if (!multi_query && kv_heads != heads) {
    return Corrupt(fmt::format("{}: num_kv_heads is {}, but without multi_query there are as many as heads ({})", where,
                               kv_heads, heads));
  }
  // The class does not run with other combinations.
  if (norms < 1 || norms > (newer ? 2 : 1) || (newer && !parallel)) {
    return Corrupt(
        fmt::format("{}: num_ln_in_parallel_attn is {} and parallel_attn {}, but FalconForCausalLM computes {}", where,
                    norms, parallel,
                    newer ? "1 or 2 norms with parallel_attn where new_decoder_architecture is true"
                          : "only 1 norm where new_decoder_architecture is false"));
  }
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "self_attention.";
    a->qkv = "query_key_value";
    a->out = "dense";
    a->fused_qkv = a->qkv_by_kv_head = true;
    a->qkv_bias = a->out_bias = bias;
    a->kv_heads = newer ? kv_heads : multi_query ? 1 : heads;
    if (!alibi) continue;
    a->rope = kNoRope;
    // The class rounds slopes to bf16, also in f32, and what they give for each place; both are then scaled as scores.
    a->slopes = AlibiSlopes(heads);
    for (double& slope : a->slopes) slope = ToFloat(FromFloat<bf16>(static_cast<float>(slope)));
    a->rounded_slopes = true;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.dense_h_to_4h";
    m->down = "mlp.dense_4h_to_h";
    m->bias = bias;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  double of_attention = 0;
  if (!parallel) {
    // The class drops out of the output of attention, and of nothing else, with this probability.
    TEMPER_ASSIGN_OR_RETURN(of_attention, ReadDropout(config, "attention_dropout", 0, where, &s.facts));
  }
  if (parallel && norms == 2) s.NameNorms({.mixer = "ln_attn", .feed_forward = "ln_mlp"});
  if (parallel && norms == 1) s.NameNorms({.feed_forward = ""});
  for (DecoderBlock& block : s.blocks) {
    block.parallel = parallel;
    block.mixer_out_dropout = of_attention;
    (parallel ? block.parts_dropout : block.feed_forward_out_dropout) = p;
  }
  s.gguf = {.name = "falcon", .activation = Activation::kGelu, .parallel = true, .fused_qkv = true};
  if (parallel && norms == 2) {
    s.gguf.attn_norm = "attn_norm_2";
    s.gguf.ffn_norm = "attn_norm";
  }
  if (bias) s.gguf.missing = "biases";
  return MakeDecoder(std::move(s));
}

}  // namespace temper
