#include "model/latent.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace temper {
namespace {

// A width of that key, positive.
Result<int64_t> ReadWidth(const Json& config, const char* key, int64_t fallback, int64_t most,
                          const std::string& where) {
  if (IsNull(config, key)) return Corrupt(fmt::format("{}: {} is null, should be a number", where, key));
  TEMPER_ASSIGN_OR_RETURN(const int64_t width, IntOr(config, key, fallback, where));
  if (IsSane(width, most)) return width;
  return Corrupt(fmt::format("{}: {} is {}, should be from 1 to {}", where, key, width, most));
}

}  // namespace

Result<DecoderSpec> ReadLatentDecoder(const Json& config, std::string architecture, const DecoderDefaults& defaults,
                                      const LatentDefaults& latent, const std::string& where) {
  constexpr double kLatentEps = 1e-6;  // of the class of norms, whatever rms_norm_eps says
  LatentAttentionSpec a{.norm = {NormKind::kRms, kLatentEps}};
  TEMPER_ASSIGN_OR_RETURN(a.rope_dim, ReadWidth(config, "qk_rope_head_dim", latent.rope_dim, kMaxHeads, where));
  TEMPER_ASSIGN_OR_RETURN(a.head_dim, ReadWidth(config, "qk_nope_head_dim", latent.head_dim, kMaxHeads, where));
  TEMPER_ASSIGN_OR_RETURN(a.kv_rank, ReadWidth(config, "kv_lora_rank", latent.kv_rank, kMaxWidth, where));
  if (!IsNull(config, "q_lora_rank") && (config.contains("q_lora_rank") || latent.q_rank > 0)) {
    TEMPER_ASSIGN_OR_RETURN(a.q_rank, ReadWidth(config, "q_lora_rank", latent.q_rank, kMaxWidth, where));
  }
  TEMPER_ASSIGN_OR_RETURN(a.bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t head_dim, IntOr(config, "head_dim", a.rope_dim, where));
  if (head_dim != a.rope_dim && !latent.ignores_head_dim) {
    return Unsupported(fmt::format("{}: head_dim is {}, but qk_rope_head_dim, which it stands for, is {}", where,
                                   head_dim, a.rope_dim));
  }

  // What turns is the head of the rotary embedding.
  Json turning = config;
  turning["head_dim"] = a.rope_dim;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(turning, std::move(architecture), defaults, where));
  const AttentionSpec& plain = *s.attentions()[0];
  a.heads = plain.heads;
  if (plain.kv_heads != plain.heads) {
    return Unsupported(fmt::format(
        "{}: num_key_value_heads is {}, but latent attention has keys for each of the {} heads of num_attention_heads",
        where, plain.kv_heads, plain.heads));
  }
  if (latent.v_head_dim > 0) {
    TEMPER_ASSIGN_OR_RETURN(a.v_head_dim, ReadWidth(config, "v_head_dim", latent.v_head_dim, kMaxHeads, where));
  } else {
    TEMPER_ASSIGN_OR_RETURN(a.v_head_dim, IntOr(config, "v_head_dim", s.hidden / a.heads, where));
    if (!IsSane(a.v_head_dim, kMaxHeads)) {
      return Corrupt(fmt::format("{}: v_head_dim is {}, should be from 1 to {}", where, a.v_head_dim, kMaxHeads));
    }
  }
  if ((a.head_dim + a.rope_dim) % 2 != 0) {
    return Unsupported(fmt::format("{}: qk_nope_head_dim is {}, should be even", where, a.head_dim));
  }
  s.ropes[0].interleaved = latent.interleaved;
  if (latent.may_be_interleaved) {
    TEMPER_ASSIGN_OR_RETURN(
        s.ropes[0].interleaved,
        BoolOr(config, "rope_interleave", !IsNull(config, "rope_interleave") && latent.interleaved, where));
  }
  TEMPER_ASSIGN_OR_RETURN(const double factor, ReadScoreFactor(config, where));
  if (factor != 1) a.scale = factor / std::sqrt(static_cast<double>(a.head_dim + a.rope_dim));
  for (DecoderBlock& block : s.blocks) block.mixer = a;
  return s;
}

GgufArchitecture LatentGguf() {
  return {.name = "deepseek2",
          .interleaved = true,
          .betas = true,
          .any_head_dim = true,
          .mixer = GgufArchitecture::Mixer::kLatent,
          .dense_first = true,
          .routes = true,
          .shared_experts = true};
}

}  // namespace temper
