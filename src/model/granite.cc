// Granite 3 (IBM 2024; transformers, GraniteForCausalLM): Llama's blocks, with constants that multiply embeddings,
// scores, and what attention and MLP add, and one that divides the logits.
#include <fmt/core.h>

#include <cmath>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadGranite(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadDecoder(config, "GraniteForCausalLM",
                  {.vocab = 32000, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048},
                  where));
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "attention_bias", false, where));
  s.attention_out_bias = s.qkv_bias;
  TEMPER_ASSIGN_OR_RETURN(s.mlp_bias, BoolOr(config, "mlp_bias", false, where));
  double divisor = 1, score_scale = 1;
  const std::pair<const char*, double*> multipliers[] = {{"embedding_multiplier", &s.embedding_scale},
                                                         {"residual_multiplier", &s.residual_scale},
                                                         {"attention_multiplier", &score_scale},
                                                         {"logits_scaling", &divisor}};
  for (const auto& [key, value] : multipliers) {
    TEMPER_ASSIGN_OR_RETURN(*value, NumberOr(config, key, 1, where));
    if (!(*value > 0) || !std::isfinite(*value)) {
      return Corrupt(fmt::format("{}: {} is {}, should be positive", where, key, *value));
    }
  }
  s.logit_scale = 1 / divisor;
  for (DecoderBlock& block : s.blocks) block.scale = score_scale;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
