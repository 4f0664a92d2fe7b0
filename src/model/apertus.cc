// Apertus, 8B and 70B (Swiss AI 2025; transformers, ApertusForCausalLM): Llama's blocks with norms of each head's q and
// k, and an MLP without gate whose activation, xIELU, learns two numbers of its own in each block.
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadApertus(const Json& file, const std::string& where) {
  Json config = file;
  const auto has = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  if (!has("rope_parameters") && !has("rope_scaling")) {
    config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 12000000.0},
                                 {"factor", 8.0},           {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "hidden_act", "xielu", where));
  const bool xielu = activation == "xielu";
  if (xielu) config.erase("hidden_act");
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "ApertusForCausalLM",
                                                     {.vocab = 131072,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 65536,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2",
                                                      .gated = false,
                                                      .rope = {.theta = 12000000}},
                                                     where));
  s.NameNorms({.mixer = "attention_layernorm", .feed_forward = "feedforward_layernorm"});
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->qkv_bias = a->out_bias = bias;
  }
  for (MlpSpec* const m : s.mlps()) {
    if (xielu) m->activation = Activation::kXielu;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
