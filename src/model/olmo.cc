// OLMo (Groeneveld et al. 2024; transformers, OlmoForCausalLM): Llama's blocks with layer norms without weights.
// OLMo 2 (OLMo team 2024; transformers, Olmo2ForCausalLM): norms on the outputs of attention and MLP instead of their
// inputs (post-norm); q and k are normed over all heads together. OLMo 3 (2025; Olmo3ForCausalLM): a sliding window in
// three of four layers, whose rotary embedding is never scaled. OLMoE (Muennighoff et al. 2024; OlmoeForCausalLM):
// Llama's blocks with q and k normed over all heads together, and experts as MLPs.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/mixture.h"

namespace temper {
namespace {

constexpr DecoderDefaults kDefaults = {
    .vocab = 50304, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048, .norm_eps = 1e-5};

// The bound of queries, keys and values; 0: none.
Result<double> ReadClip(const Json& config, const std::string& where) {
  if (!config.contains("clip_qkv") || IsNull(config, "clip_qkv")) return 0.0;
  TEMPER_ASSIGN_OR_RETURN(const double clip, NumberOr(config, "clip_qkv", 0, where));
  if (clip > 0) return clip;
  return Corrupt(fmt::format("{}: clip_qkv is {}, should be positive or null", where, clip));
}

Result<DecoderSpec> ReadLaterOlmo(const Json& config, const char* architecture, const DecoderDefaults& defaults,
                                  const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  s.NameNorms({.mixer = "",
               .feed_forward = "",
               .mixer_out = "post_attention_layernorm",
               .feed_forward_out = "post_feedforward_layernorm"});
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kWhole;
    a->qkv_bias = a->out_bias = bias;
  }
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadOlmo(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "OlmoForCausalLM", kDefaults, where));
  s.SetNorm({NormKind::kLayerPlain, 1e-5});  // eps of the class; there is no key
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const double clip, ReadClip(config, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = a->out_bias = bias;
    a->clip = clip;
  }
  s.gguf = {.name = "olmo", .interleaved = true, .clips = true};
  if (clip > 0) s.gguf.keys = {{"attention.clamp_kqv", static_cast<float>(clip)}};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadOlmo2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLaterOlmo(config, "Olmo2ForCausalLM", kDefaults, where));
  s.gguf = {.name = "olmo2", .needs_head = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadOlmo3(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kDefaults;
  defaults.rope.theta = 500000;
  defaults.rope.layer_type = "full_attention";
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLaterOlmo(config, "Olmo3ForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [](int64_t block) { return (block + 1) % 4 != 0; }, where, &s));
  // In older files, rope_scaling applies only to the layers without a window.
  Json sliding = config;
  sliding.erase("rope_scaling");
  TEMPER_ASSIGN_OR_RETURN(s.ropes.emplace_back(), ReadRope(sliding, "sliding_attention", defaults.rope,
                                                           s.attentions()[0]->head_dim, s.facts.max_positions, where));
  for (AttentionSpec* const a : s.attentions()) a->rope = a->window > 0 ? 1 : 0;
  s.gguf = {.name = "olmo2", .windows = true, .needs_head = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadOlmoe(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kDefaults;
  defaults.hidden = defaults.ffn = 2048;
  defaults.blocks = defaults.heads = 16;
  defaults.max_positions = 4096;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "OlmoeForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const double clip, ReadClip(config, where));
  if (config.contains("sliding_window") && !config["sliding_window"].is_null()) {
    // transformers gives it to flash attention, and not to its own.
    return Unsupported(where + ": sliding_window of OlmoeForCausalLM is not supported");
  }
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->clip = clip;
    a->clips_after_norms = true;
    a->qk_norm = AttentionSpec::QkNorm::kWhole;
    a->qkv_bias = a->out_bias = bias;
  }
  ExpertsSpec experts{.experts = 64, .active = 8, .ffn = 2048};
  TEMPER_ASSIGN_OR_RETURN(experts.normalise, BoolOr(config, "norm_topk_prob", false, where));
  TEMPER_ASSIGN_OR_RETURN(experts, ReadExperts(config, "intermediate_size", experts, where, &s, /*balance=*/0.01));
  for (DecoderBlock& block : s.blocks) block.feed_forward = experts;
  s.gguf = {.name = "olmoe", .needs_head = true, .same_kv_heads = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
