// Granite 3 (IBM 2024; transformers, GraniteForCausalLM): Llama's blocks, with constants that multiply embeddings,
// scores, and what attention and MLP add, and one that divides the logits. HyperCLOVA X (NAVER 2025;
// HyperCLOVAXForCausalLM): the last multiplies the logits, and there may be norms on the outputs of attention and MLP.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// `logits_scaling` is the key's value. The scale of scores is 0 where the file has none.
Result<DecoderSpec> ReadGranites(const Json& config, const char* architecture, double score_scale,
                                 double* logits_scaling, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadDecoder(config, architecture,
                  {.vocab = 32000, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048},
                  where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  *logits_scaling = 1;
  double residual_scale = 1;
  const std::pair<const char*, double*> multipliers[] = {{"embedding_multiplier", &s.embedding_scale},
                                                         {"residual_multiplier", &residual_scale},
                                                         {"attention_multiplier", &score_scale},
                                                         {"logits_scaling", logits_scaling}};
  for (const auto& [key, value] : multipliers) {
    TEMPER_ASSIGN_OR_RETURN(const double given, NumberOr(config, key, *value, where));
    const bool none = *value == 0 && given == 0 && !config.contains(key);
    *value = given;
    if ((!(*value > 0) && !none) || !std::isfinite(*value)) {
      return Corrupt(fmt::format("{}: {} is {}, should be positive", where, key, *value));
    }
  }
  for (DecoderBlock& block : s.blocks) block.residual_scale = residual_scale;
  for (AttentionSpec* const a : s.attentions()) a->scale = score_scale;
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGranite(const Json& config, const std::string& where) {
  double divisor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGranites(config, "GraniteForCausalLM", 1, &divisor, where));
  s.logit_scale = 1 / divisor;
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadHyperClovaX(const Json& config, const std::string& where) {
  double factor = 1;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGranites(config, "HyperCLOVAXForCausalLM", 0, &factor, where));
  s.logit_scale = factor;
  for (AttentionSpec* const a : s.attentions()) {
    if (a->scale == 0) a->scale = std::pow(static_cast<double>(a->head_dim), -0.5);
  }
  TEMPER_ASSIGN_OR_RETURN(const bool post_norm, BoolOr(config, "use_post_norm", true, where));
  if (post_norm) s.NameNorms({.mixer_out = "post_norm1", .feed_forward_out = "post_norm2"});
  return MakeDecoder(std::move(s));
}

}  // namespace temper
