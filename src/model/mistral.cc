// Mistral 7B and Nemo (Jiang et al. 2023; transformers, MistralForCausalLM): Llama's blocks; the first version has a
// sliding window in all of them. Ministral 8B (2024; MinistralForCausalLM): sliding windows in the layers that the file
// names. Ministral 3 (2025; Ministral3ForCausalLM): YaRN, and queries scaled up with their position.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

Status SetWindow(const Json& config, int64_t fallback, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, fallback, where));
  return SetWindows(
      config, window, [window](int64_t) { return window > 0; }, where, spec);
}

bool IsMissing(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null();
}

Result<DecoderSpec> ReadWindowed(const Json& config, const char* architecture, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture,
                                                     {.vocab = 32000,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 131072,
                                                      .kv_heads = 8},
                                                     where));
  TEMPER_RETURN_IF_ERROR(SetWindow(config, 4096, where, &s));
  return s;
}

}  // namespace

// If the file has layer_types, transformers also treats it as a Ministral (AutoConfig).
Result<std::unique_ptr<Model>> ReadMistral(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadWindowed(config, "MistralForCausalLM", where));
  s.gguf = {
      .name = "llama", .interleaved = true, .out_bias = true, .mlp_bias = true, .factors = true, .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadMinistral(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadWindowed(config, "MinistralForCausalLM", where));
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadMinistral3(const Json& given, const std::string& where) {
  Json config = given;
  if (IsMissing(config, "rope_parameters") && IsMissing(config, "rope_scaling")) {
    config["rope_parameters"] = {{"rope_type", "yarn"},
                                 {"rope_theta", 1000000.0},
                                 {"factor", 16.0},
                                 {"original_max_position_embeddings", 16384},
                                 {"mscale_all_dim", 1.0},
                                 {"mscale", 1.0},
                                 {"llama_4_scaling_beta", 0.1}};
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Ministral3ForCausalLM",
                                                     {.vocab = 131072,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 34,
                                                      .heads = 32,
                                                      .max_positions = 262144,
                                                      .kv_heads = 8,
                                                      .head_dim = 128,
                                                      .norm_eps = 1e-5},
                                                     where));
  TEMPER_RETURN_IF_ERROR(ReadPositionScale(config, "llama_4_scaling_beta", where, &s.ropes[0]));
  TEMPER_RETURN_IF_ERROR(SetWindow(config, 0, where, &s));
  s.gguf = {.name = "mistral3",
            .interleaved = true,
            .betas = true,
            .scales_queries = true,
            .factors = true,
            .any_head_dim = true,
            .keys = {{"attention.temperature_scale", static_cast<float>(s.ropes[0].position_beta)}}};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
