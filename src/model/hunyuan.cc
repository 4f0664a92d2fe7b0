// Hunyuan 0.5B to 7B (Tencent 2025; transformers, HunYuanDenseV1ForCausalLM): Llama's blocks; q and k of each head are
// normed behind the rotary embedding.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// Files call a base that is stretched once "dynamic", with an alpha.
Status StretchByAlpha(const std::string& where, int64_t head_dim, Json* config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = config->find(key);
    if (found == config->end() || !found->is_object()) continue;
    Json& rope = *found;
    TEMPER_ASSIGN_OR_RETURN(std::string type, StringOr(rope, "type", "", where));
    TEMPER_ASSIGN_OR_RETURN(type, StringOr(rope, "rope_type", type, where));
    TEMPER_ASSIGN_OR_RETURN(const double alpha, NumberOr(rope, "alpha", 0, where));
    if (type != "dynamic" || alpha == 0) continue;
    TEMPER_ASSIGN_OR_RETURN(double theta, NumberOr(*config, "rope_theta", 10000, where));
    TEMPER_ASSIGN_OR_RETURN(theta, NumberOr(rope, "rope_theta", theta, where));
    if (!(alpha > 0) || head_dim <= 2) {
      return Corrupt(fmt::format("{}: alpha {} of rope scaling should be positive, and head_dim {} above 2", where,
                                 alpha, head_dim));
    }
    const auto dims = static_cast<double>(head_dim);
    rope["rope_theta"] = theta * std::pow(alpha, dims / (dims - 2));
    rope["rope_type"] = "default";
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Model>> ReadHunYuanDense(const Json& file, const std::string& where) {
  DecoderDefaults defaults{.vocab = 290943,
                           .hidden = 4096,
                           .ffn = 11008,
                           .blocks = 32,
                           .heads = 32,
                           .max_positions = 2048,
                           .norm_eps = 1e-5};
  DecoderDefaults sizes = defaults;
  sizes.rotary = false;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec plain, ReadDecoder(file, "HunYuanDenseV1ForCausalLM", sizes, where));
  Json config = file;
  TEMPER_RETURN_IF_ERROR(StretchByAlpha(where, plain.attentions()[0]->head_dim, &config));
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "HunYuanDenseV1ForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->norms_after_rope = true;
    a->q_norm = "query_layernorm";
    a->k_norm = "key_layernorm";
    a->qkv_bias = a->out_bias = bias;
  }
  s.gguf = {.name = "hunyuan-dense", .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
