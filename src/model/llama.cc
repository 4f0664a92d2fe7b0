// Llama 1, 2, 3.x (Touvron et al. 2023; transformers, LlamaForCausalLM): pre-norm blocks of RMSNorm, rotary
// grouped-query attention and SwiGLU.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

FamilyReader ReadExaone;

Result<std::unique_ptr<Model>> ReadLlama(const Json& config, const std::string& where) {
  // As transformers writes EXAONE 3, whose class it is, too.
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(config, "model_type", "llama", where));
  if (type == "exaone") return ReadExaone(config, where);
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadDecoder(config, "LlamaForCausalLM",
                  {.vocab = 32000, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048},
                  where));
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "attention_bias", false, where));
  s.attention_out_bias = s.qkv_bias;
  TEMPER_ASSIGN_OR_RETURN(s.mlp_bias, BoolOr(config, "mlp_bias", false, where));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
