// ERNIE 4.5 0.3B (Baidu 2025; transformers, Ernie4_5ForCausalLM): Llama's blocks, with a rotary embedding of
// interleaved pairs. The larger ones have experts, which are another class.
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadErnie45(const Json& file, const std::string& where) {
  Json config = file;
  config.erase("attention_dropout");  // which the class sets to 0
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Ernie4_5ForCausalLM",
                                                     {.vocab = 103424,
                                                      .hidden = 1024,
                                                      .ffn = 3072,
                                                      .blocks = 18,
                                                      .heads = 16,
                                                      .max_positions = 131072,
                                                      .kv_heads = 2,
                                                      .head_dim = 128,
                                                      .norm_eps = 1e-5,
                                                      .tied = true,
                                                      .rope = {.theta = 500000}},
                                                     where));
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "use_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  for (MlpSpec* const m : s.mlps()) m->bias = bias;
  s.gguf = {.name = "ernie4_5", .interleaved = true, .out_bias = true, .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
