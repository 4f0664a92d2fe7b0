// Qwen3.5, 3.6 and 3.8, dense (Qwen team 2026; transformers, Qwen3_5ForCausalLM, the text model of
// Qwen3_5ForConditionalGeneration): three of four blocks mix tokens by a gated delta net, the others by attention whose
// output is gated. Norms scale by 1 + w.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "graph/ops/short_conv.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

Result<GatedDeltaSpec> ReadDelta(const Json& config, double norm_eps, const std::string& where) {
  GatedDeltaSpec delta{.norm_eps = norm_eps};
  TEMPER_ASSIGN_OR_RETURN(delta.taps, IntOr(config, "linear_conv_kernel_dim", 4, where));
  TEMPER_ASSIGN_OR_RETURN(delta.key_dim, IntOr(config, "linear_key_head_dim", 128, where));
  TEMPER_ASSIGN_OR_RETURN(delta.value_dim, IntOr(config, "linear_value_head_dim", 128, where));
  TEMPER_ASSIGN_OR_RETURN(delta.key_heads, IntOr(config, "linear_num_key_heads", 16, where));
  TEMPER_ASSIGN_OR_RETURN(delta.value_heads, IntOr(config, "linear_num_value_heads", 32, where));
  if (!IsSane(delta.key_dim, kMaxHeads) || !IsSane(delta.value_dim, kMaxHeads) || !IsSane(delta.key_heads, kMaxHeads) ||
      !IsSane(delta.value_heads, kMaxHeads) || delta.value_heads % delta.key_heads != 0) {
    return Corrupt(
        fmt::format("{}: linear_num_value_heads {} should be a positive multiple of linear_num_key_heads {}, and "
                    "linear_key_head_dim {} and linear_value_head_dim {} positive",
                    where, delta.value_heads, delta.key_heads, delta.key_dim, delta.value_dim));
  }
  if (delta.taps < 1 || delta.taps > kMaxConvTaps) {
    return Unsupported(fmt::format("{}: linear_conv_kernel_dim is {}; convolutions of 1 to {} tokens are supported",
                                   where, delta.taps, kMaxConvTaps));
  }
  return delta;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadQwen35(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Qwen3_5ForCausalLM",
                                                     {.vocab = 248320,
                                                      .hidden = 4096,
                                                      .ffn = 12288,
                                                      .blocks = 32,
                                                      .heads = 16,
                                                      .max_positions = 32768,
                                                      .kv_heads = 4,
                                                      .head_dim = 256,
                                                      .rope = {.partial = 0.25}},
                                                     where));
  if (s.mlps()[0]->activation != Activation::kSilu) {
    return Unsupported(fmt::format("{}: hidden_act is {}; supported is silu, which the convolutions have, too", where,
                                   DumpJson(config["hidden_act"]).substr(0, 40)));
  }
  s.names.other_prefix = "model.language_model.";  // as transformers writes the text model of a multimodal folder
  s.SetNorm(NormKind::kRmsPlusOne);
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->gated = true;
    a->qkv_bias = a->out_bias = bias;
  }
  TEMPER_ASSIGN_OR_RETURN(const GatedDeltaSpec delta, ReadDelta(config, s.norm.eps, where));
  TEMPER_ASSIGN_OR_RETURN(std::vector<bool> attention,
                          ReadAttentionLayers(config, "linear_attention", s.blocks.size(), where));
  if (attention.empty()) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t interval, IntOr(config, "full_attention_interval", 4, where));
    if (interval < 1) {
      return Corrupt(fmt::format("{}: full_attention_interval is {}, should be at least 1", where, interval));
    }
    for (size_t b = 0; b < s.blocks.size(); ++b) attention.push_back(static_cast<int64_t>(b + 1) % interval == 0);
  }
  for (size_t b = 0; b < attention.size(); ++b) {
    if (!attention[b]) s.blocks[b].mixer = delta;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
