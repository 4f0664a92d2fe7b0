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
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "attention_bias", true, where));
  TEMPER_ASSIGN_OR_RETURN(s.attention_out_bias, BoolOr(config, "attention_out_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(s.mlp_bias, BoolOr(config, "mlp_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(s.attention_out_dropout, ReadDropout(config, "residual_dropout", 0.1, where, &s.facts));
  s.mlp_out_dropout = s.attention_out_dropout;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
