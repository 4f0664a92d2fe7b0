// Qwen2, 2.5 (Yang et al. 2024; transformers, Qwen2ForCausalLM): Llama's blocks with biases on q, k and v. Qwen3 (Yang
// et al. 2025; Qwen3ForCausalLM): without biases, with a norm of each head's q and k. Qwen3-MoE (Qwen3MoeForCausalLM):
// the same with experts as MLPs, in all blocks or in some.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/mixture.h"

namespace temper {
namespace {

// In both, the last blocks have a sliding window if the file enables it.
Status SetQwenWindows(const Json& config, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const bool windows, BoolOr(config, "use_sliding_window", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t first, IntOr(config, "max_window_layers", 28, where));
  int64_t window = 0;
  if (windows) {
    TEMPER_ASSIGN_OR_RETURN(window, ReadWindow(config, 4096, where));
  }
  return SetWindows(
      config, window, [&](int64_t block) { return block >= first; }, where, spec);
}

constexpr DecoderDefaults kQwenDefaults = {
    .vocab = 151936, .hidden = 4096, .ffn = 22016, .blocks = 32, .heads = 32, .max_positions = 32768, .kv_heads = 32};

}  // namespace

Result<std::unique_ptr<Model>> ReadQwen2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Qwen2ForCausalLM", kQwenDefaults, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = true;
  TEMPER_RETURN_IF_ERROR(SetQwenWindows(config, where, &s));
  s.gguf = {.name = "qwen2"};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadQwen3(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kQwenDefaults;
  defaults.head_dim = 128;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Qwen3ForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->qkv_bias = a->out_bias = bias;
  }
  TEMPER_RETURN_IF_ERROR(SetQwenWindows(config, where, &s));
  s.gguf = {.name = "qwen3", .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadQwen3Moe(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kQwenDefaults;
  defaults.hidden = 2048;
  defaults.ffn = 6144;
  defaults.blocks = 24;
  defaults.kv_heads = 4;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Qwen3MoeForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool windows, BoolOr(config, "use_sliding_window", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window,
                          windows ? ReadWindow(config, 4096, where) : Result<int64_t>(int64_t{0}));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->qkv_bias = a->out_bias = bias;
    a->window = window;
  }
  TEMPER_RETURN_IF_ERROR(SetQwenExperts(config, {.experts = 128, .active = 8, .ffn = 768}, where, &s));
  s.gguf = {.name = "qwen3moe", .any_head_dim = true, .normalises_experts = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadQwen2Moe(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kQwenDefaults;
  defaults.hidden = 2048;
  defaults.ffn = 5632;
  defaults.blocks = 24;
  defaults.heads = defaults.kv_heads = 16;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Qwen2MoeForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "qkv_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool windows, BoolOr(config, "use_sliding_window", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t first, IntOr(config, "max_window_layers", 28, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window,
                          windows ? ReadWindow(config, 4096, where) : Result<int64_t>(int64_t{0}));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return windows && block % 2 == 0 && block < first; }, where, &s));
  TEMPER_ASSIGN_OR_RETURN(MlpSpec shared, ReadSharedExpert(config, 5632, s, where));
  TEMPER_RETURN_IF_ERROR(SetQwenExperts(
      config,
      {.experts = 60, .active = 4, .ffn = 1408, .shared = std::move(shared), .were_modules = false},  // for PEFT 0.21
      where, &s));
  s.gguf = {.name = "qwen2moe"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
