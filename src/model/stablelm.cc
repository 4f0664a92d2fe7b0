// StableLM 2 and 3B (Stability AI 2023; transformers, StableLmForCausalLM): Llama's blocks with layer norms and a
// rotary embedding of a quarter of each head. Some have biases on q, k and v, or attention and MLP beside each other
// and layer norms of each head's q and k (12B).
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadStableLm(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "StableLmForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 50304,
                                                      .hidden = 2560,
                                                      .ffn = 6912,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 4096,
                                                      .kv_heads = 32,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.partial = 0.25}},
                                                     where));
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  s.SetNorm(NormKind::kLayer);
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "use_qkv_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool qk_norm, BoolOr(config, "qk_layernorm", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = bias;
    if (qk_norm) a->qk_norm = AttentionSpec::QkNorm::kEachHead;
    a->q_norm = "q_layernorm";
    a->k_norm = "k_layernorm";
    a->head_norms = "norms";
  }
  TEMPER_ASSIGN_OR_RETURN(const bool parallel, BoolOr(config, "use_parallel_residual", false, where));
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.parallel = parallel;
    if (parallel) block.norms.feed_forward = "";
    block.feed_forward_out_dropout = p;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
