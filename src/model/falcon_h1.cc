// Falcon-H1 (TII 2025; transformers, FalconH1ForCausalLM): attention and Mamba-2 beside each other in every block, and
// constants that multiply embeddings, logits, and what the products of a block read and give.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "format/json.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mamba.h"

namespace temper {
namespace {

Status CheckFactor(double factor, const std::string& key, const std::string& where) {
  if (std::isfinite(factor)) return OkStatus();
  return Corrupt(fmt::format("{}: {} is {}, should be a number", where, key, factor));
}

Result<double> ReadFactor(const Json& config, const char* key, const std::string& where) {
  if (IsNull(config, key)) return 1.0;
  TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(config, key, 1, where));
  TEMPER_RETURN_IF_ERROR(CheckFactor(factor, key, where));
  return factor;
}

Status ReadFactors(const Json& config, const char* key, std::span<double> factors, const std::string& where) {
  const auto list = config.find(key);
  if (list == config.end() || list->is_null()) return OkStatus();
  if (!list->is_array() || list->size() != factors.size()) {
    return Corrupt(fmt::format("{}: {} is {}, should be a list of {} numbers", where, key,
                               DumpJson(*list).substr(0, 60), factors.size()));
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(*list)[i].is_number()) {
      return Corrupt(
          fmt::format("{}: {}[{}] is {}, should be a number", where, key, i, DumpJson((*list)[i]).substr(0, 40)));
    }
    factors[i] = (*list)[i].get<double>();
    TEMPER_RETURN_IF_ERROR(CheckFactor(factors[i], key, where));
  }
  return OkStatus();
}

Result<Mamba2Spec> ReadFalconMamba(const Json& config, int64_t hidden, double norm_eps, const std::string& where) {
  int64_t width = 0;
  std::string name;
  if (IsNull(config, "mamba_d_ssm")) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t expand, IntOr(config, "mamba_expand", 2, where));
    width = IsSane(expand, kMaxHeads) ? expand * hidden : 0;
    name = fmt::format("mamba_expand {} times hidden_size {}", expand, hidden);
  } else {
    TEMPER_ASSIGN_OR_RETURN(width, IntOr(config, "mamba_d_ssm", 1024, where));
    name = fmt::format("mamba_d_ssm {}", width);
  }
  TEMPER_ASSIGN_OR_RETURN(Mamba2Spec m, ReadMamba2(config, width, name, norm_eps, where));
  TEMPER_ASSIGN_OR_RETURN(m.in_bias, BoolOr(config, "mamba_proj_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(m.out_bias, BoolOr(config, "projectors_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool normed, BoolOr(config, "mamba_rms_norm", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool before_gate, BoolOr(config, "mamba_norm_before_gate", true, where));
  m.norms = !normed       ? Mamba2Spec::Norm::kNone
            : before_gate ? Mamba2Spec::Norm::kBeforeGate
                          : Mamba2Spec::Norm::kAfterGate;
  TEMPER_ASSIGN_OR_RETURN(m.in_scale, ReadFactor(config, "ssm_in_multiplier", where));
  TEMPER_RETURN_IF_ERROR(ReadFactors(config, "ssm_multipliers", m.scales, where));
  return m;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadFalconH1(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "FalconH1ForCausalLM",
                                                     {.vocab = 128000,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 8192,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5},
                                                     where));
  s.names.final_norm = "final_layernorm";
  TEMPER_ASSIGN_OR_RETURN(s.embedding_scale, ReadFactor(config, "embedding_multiplier", where));
  TEMPER_ASSIGN_OR_RETURN(s.logit_scale, ReadFactor(config, "lm_head_multiplier", where));
  TEMPER_ASSIGN_OR_RETURN(const bool attention_bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  std::array<double, 2> mlp_scales = {1, 1};
  TEMPER_RETURN_IF_ERROR(ReadFactors(config, "mlp_multipliers", mlp_scales, where));
  AttentionBesideMamba2Spec mixer{.attention = *s.attentions()[0]};
  TEMPER_ASSIGN_OR_RETURN(mixer.mamba, ReadFalconMamba(config, s.hidden, s.norm.eps, where));
  TEMPER_ASSIGN_OR_RETURN(mixer.attention_in_scale, ReadFactor(config, "attention_in_multiplier", where));
  TEMPER_ASSIGN_OR_RETURN(mixer.attention_out_scale, ReadFactor(config, "attention_out_multiplier", where));
  TEMPER_ASSIGN_OR_RETURN(mixer.mamba_out_scale, ReadFactor(config, "ssm_out_multiplier", where));
  TEMPER_ASSIGN_OR_RETURN(const double key_scale, ReadFactor(config, "key_multiplier", where));
  if (key_scale == 0) return Corrupt(fmt::format("{}: key_multiplier is 0, should be another number", where));
  AttentionSpec& a = mixer.attention;
  a.qkv_bias = a.out_bias = attention_bias;
  // Scores are linear in keys, which the rotary embedding turns and does not stretch.
  a.scale = key_scale / std::sqrt(static_cast<double>(a.head_dim));
  MlpSpec mlp = *s.mlps()[0];
  if (mlp.activation != Activation::kSilu) {
    return Unsupported(fmt::format("{}: hidden_act is {}; supported is silu, which the convolutions have, too", where,
                                   DumpJson(config["hidden_act"]).substr(0, 40)));
  }
  mlp.bias = mlp_bias;
  mlp.gate_scale = mlp_scales[0];
  mlp.out_scale = mlp_scales[1];
  mlp.gate = "feed_forward.gate_proj", mlp.up = "feed_forward.up_proj", mlp.down = "feed_forward.down_proj";
  for (DecoderBlock& block : s.blocks) {
    block.norms.feed_forward = "pre_ff_layernorm";
    block.mixer = mixer;
    block.feed_forward = mlp;
  }
  s.gguf = {.name = "falcon-h1",
            .out_bias = true,
            .mlp_bias = true,
            .factors = true,
            .needs_head = s.embedding_scale != s.logit_scale,
            .any_head_dim = true,
            .mixer = GgufArchitecture::Mixer::kBesideMamba2,
            .folded_scales = true,
            .bare_ffn_norm = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
