// Qwen3.5, 3.6 and 3.8 (Qwen team 2026; transformers, Qwen3_5ForCausalLM, the text model of
// Qwen3_5ForConditionalGeneration, and Qwen3_5MoeForCausalLM): three of four blocks mix tokens by a gated delta net,
// the others by attention whose output is gated. Norms scale by 1 + w. Qwen3-Next (2025; Qwen3NextForCausalLM), the
// mixture before them: its projections of a delta net are fused by key head, and its files have experts one by one.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "graph/ops/short_conv.h"
#include "model/decoder.h"
#include "model/families.h"
#include "model/mixture.h"

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

// The parts that the dense models and the mixtures share.
Result<DecoderSpec> ReadDeltaDecoder(const Json& config, const char* architecture, const DecoderDefaults& defaults,
                                     const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  if (s.mlps()[0]->activation != Activation::kSilu) {
    return Unsupported(fmt::format("{}: hidden_act is {}; supported is silu, which the convolutions have, too", where,
                                   DumpJson(config["hidden_act"]).substr(0, 40)));
  }
  s.SetNorm(NormKind::kRmsPlusOne);
  s.facts.ignored.push_back("mtp.");  // drafts, which the class does not load
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
  return s;
}

constexpr DecoderDefaults kMixtureDefaults = {.vocab = 248320,
                                              .hidden = 2048,
                                              .ffn = 5632,
                                              .blocks = 40,
                                              .heads = 16,
                                              .max_positions = 32768,
                                              .kv_heads = 2,
                                              .head_dim = 256,
                                              .rope = {.partial = 0.25}};

// llama.cpp turns texts as it turns pictures: three counts of positions take every third pair each.
std::vector<int32_t> SectionsOf(const DecoderSpec& s) {
  const auto pairs = static_cast<int32_t>(s.ropes[0].inv_freq.size());
  return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
}

GgufArchitecture DeltaGguf(const char* name, bool tiled_values) {
  return {.name = name,
          .any_head_dim = true,
          .ffn_norm = "post_attention_norm",
          .mixer = GgufArchitecture::Mixer::kGatedDelta,
          .tiled_values = tiled_values,
          .gated_attention = true};
}

}  // namespace

Result<std::unique_ptr<Model>> ReadQwen35(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kMixtureDefaults;
  defaults.hidden = 4096;
  defaults.ffn = 12288;
  defaults.blocks = 32;
  defaults.kv_heads = 4;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDeltaDecoder(config, "Qwen3_5ForCausalLM", defaults, where));
  s.names.other_prefix = "model.language_model.";  // as transformers writes the text model of a multimodal folder
  s.gguf = DeltaGguf("qwen35", /*tiled_values=*/true);
  s.gguf.keys = {{"rope.dimension_sections", SectionsOf(s)}};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadQwen35Moe(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDeltaDecoder(config, "Qwen3_5MoeForCausalLM", kMixtureDefaults, where));
  s.names.other_prefix = "model.language_model.";
  TEMPER_ASSIGN_OR_RETURN(MlpSpec shared, ReadSharedExpert(config, 512, s, where));
  TEMPER_ASSIGN_OR_RETURN(const ExpertsSpec experts, ReadExperts(config, "moe_intermediate_size",
                                                                 {.experts = 256,
                                                                  .active = 8,
                                                                  .ffn = 512,
                                                                  .normalise = true,
                                                                  .shared = std::move(shared),
                                                                  .were_modules = false,
                                                                  .files = ForwardBuilder::StackFiles::kOutIn},
                                                                 where, &s));
  for (DecoderBlock& block : s.blocks) block.feed_forward = experts;
  s.gguf = DeltaGguf("qwen35moe", /*tiled_values=*/true);
  s.gguf.normalises_experts = true;
  s.gguf.keys = {{"rope.dimension_sections", SectionsOf(s)}};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadQwen3Next(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kMixtureDefaults;
  defaults.vocab = 151936;
  defaults.blocks = 48;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDeltaDecoder(config, "Qwen3NextForCausalLM", defaults, where));
  for (DecoderBlock& block : s.blocks) {
    if (auto* const delta = std::get_if<GatedDeltaSpec>(&block.mixer)) {
      delta->qkvz = "in_proj_qkvz";
      delta->ba = "in_proj_ba";
    }
  }
  TEMPER_ASSIGN_OR_RETURN(MlpSpec shared, ReadSharedExpert(config, 512, s, where));
  TEMPER_RETURN_IF_ERROR(SetQwenExperts(
      config, {.experts = 512, .active = 10, .ffn = 512, .normalise = true, .shared = std::move(shared)}, where, &s));
  s.gguf = DeltaGguf("qwen3next", /*tiled_values=*/false);
  s.gguf.normalises_experts = true;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
