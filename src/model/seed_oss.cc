// Seed-OSS (ByteDance 2025; transformers, SeedOssForCausalLM): Llama's blocks with biases on q, k and v, and dropout on
// the outputs of attention and MLP.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadSeedOss(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "SeedOssForCausalLM",
                                                     {.vocab = 155136,
                                                      .hidden = 4096,
                                                      .ffn = 27648,
                                                      .blocks = 64,
                                                      .heads = 80,
                                                      .max_positions = 524288,
                                                      .kv_heads = 8,
                                                      .head_dim = 128,
                                                      .attention_dropout = 0.1},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool out_bias, BoolOr(config, "attention_out_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = bias;
    a->out_bias = out_bias;
  }
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "residual_dropout", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  s.gguf = {.name = "seed_oss", .any_head_dim = true, .ffn_norm = "post_attention_norm"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
