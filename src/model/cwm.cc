// CWM, the code world model (Meta 2025; transformers, CwmForCausalLM): Llama 3's blocks, a window in three of four
// layers.
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadCwm(const Json& given, const std::string& where) {
  Json config = given;
  const auto has = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  if (!has("rope_parameters") && !has("rope_scaling")) {
    config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 1000000.0},
                                 {"factor", 16.0},          {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "CwmForCausalLM",
                                                     {.vocab = 128256,
                                                      .hidden = 6144,
                                                      .ffn = 21504,
                                                      .blocks = 64,
                                                      .heads = 48,
                                                      .max_positions = 131072,
                                                      .kv_heads = 8,
                                                      .head_dim = 128,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.theta = 1000000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 8192, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return window > 0 && block % 4 != 0; }, where, &s));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
