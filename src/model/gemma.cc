// Gemma (Gemma Team 2024; transformers, GemmaForCausalLM): embeddings times sqrt(hidden), norms that scale by 1 + w,
// GeGLU. Gemma 2 (2024; Gemma2ForCausalLM): also norms on the outputs of attention and MLP; capped scores and logits; a
// window in every other layer. Gemma 3 (2025; Gemma3ForCausalLM, and the text part of Gemma3ForConditionalGeneration):
// norms of each head's q and k instead of capped scores; five layers with a window and their own rotary embedding to
// one without. VaultGemma (2025; VaultGemmaForCausalLM): Gemma 2 without the norms on outputs.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

Result<DecoderSpec> ReadGemmas(const Json& config, const char* architecture, DecoderDefaults defaults,
                               const std::string& where) {
  defaults.head_dim = 256;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tied = true;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  TEMPER_ASSIGN_OR_RETURN(const bool both_ways, BoolOr(config, "use_bidirectional_attention", false, where));
  if (both_ways) {
    return Unsupported(where + ": use_bidirectional_attention: only models of text that attend to what came before");
  }
  s.SetNorm(NormKind::kRmsPlusOne);
  s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.scales_in_embedding = s.rounds_embedding_scale = true;
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  return s;
}

// llama.cpp knows the largest model by its number of blocks, and divides its scores by another root.
GgufArchitecture GemmaGguf(const char* name, DecoderSpec& s, int64_t blocks_of_largest) {
  GgufArchitecture gguf{
      .name = name, .activation = Activation::kGeluTanh, .scales_embedding = true, .any_head_dim = true};
  const bool largest = std::ssize(s.blocks) == blocks_of_largest;
  if (largest) gguf.score_scale = 1 / std::sqrt(static_cast<double>(s.hidden / s.attentions()[0]->heads));
  return gguf;
}

// 0 where the file says null.
Result<double> ReadCap(const Json& config, const char* key, double fallback, const std::string& where) {
  if (const auto it = config.find(key); it != config.end() && it->is_null()) return 0;
  TEMPER_ASSIGN_OR_RETURN(const double cap, NumberOr(config, key, fallback, where));
  const bool none = fallback == 0 && !config.contains(key);
  if (!(cap > 0) && !none) return Corrupt(fmt::format("{}: {} is {}, should be positive or null", where, key, cap));
  return cap;
}

// Of Gemma 2 and 3: four norms in a block, and a scale of scores.
Result<DecoderSpec> ReadLaterGemma(const Json& config, const char* architecture, DecoderDefaults defaults,
                                   const std::string& where) {
  defaults.hidden = 2304;
  defaults.ffn = 9216;
  defaults.blocks = 26;
  defaults.heads = 8;
  defaults.kv_heads = 4;
  defaults.keys.activation = "hidden_activation";
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGemmas(config, architecture, defaults, where));
  s.NameNorms({.feed_forward = "pre_feedforward_layernorm",
               .mixer_out = "post_attention_layernorm",
               .feed_forward_out = "post_feedforward_layernorm"});
  TEMPER_ASSIGN_OR_RETURN(const double scalar, NumberOr(config, "query_pre_attn_scalar", 256, where));
  if (!(scalar > 0)) {
    return Corrupt(fmt::format("{}: query_pre_attn_scalar is {}, should be positive", where, scalar));
  }
  for (AttentionSpec* const a : s.attentions()) a->scale = 1 / std::sqrt(scalar);
  return s;
}

// Windows of all layers but every `pattern`-th, where the file has no layer_types. transformers refuses windowed layers
// without a window, too.
Status SetGemmaWindows(const Json& config, int64_t pattern, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window > 0 ? window : 1, [&](int64_t block) { return (block + 1) % pattern != 0; }, where, spec));
  for (const AttentionSpec* const a : spec->attentions()) {
    if (window == 0 && a->window > 0) {
      return Corrupt(where + ": sliding_window is null or 0, and there are layers of sliding attention");
    }
  }
  return OkStatus();
}

// Of Gemma 2 and VaultGemma.
Result<DecoderSpec> ReadCapped(const Json& config, const char* architecture, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadLaterGemma(config, architecture, {.vocab = 256000, .max_positions = 8192}, where));
  TEMPER_ASSIGN_OR_RETURN(const double cap, ReadCap(config, "attn_logit_softcapping", 50, where));
  for (AttentionSpec* const a : s.attentions()) a->score_cap = cap;
  TEMPER_ASSIGN_OR_RETURN(s.logit_cap, ReadCap(config, "final_logit_softcapping", 30, where));
  TEMPER_RETURN_IF_ERROR(SetGemmaWindows(config, 2, where, &s));
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGemma(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGemmas(config, "GemmaForCausalLM",
                                                    {.vocab = 256000,
                                                     .hidden = 3072,
                                                     .ffn = 24576,
                                                     .blocks = 28,
                                                     .heads = 16,
                                                     .max_positions = 8192,
                                                     .kv_heads = 16},
                                                    where));
  // Files that say gelu mean the approximation with which the models were trained.
  for (MlpSpec* const m : s.mlps()) {
    if (m->activation == Activation::kGelu) m->activation = Activation::kGeluTanh;
  }
  s.gguf = GemmaGguf("gemma", s, 0);
  s.gguf.own_head = false;
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGemma2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadCapped(config, "Gemma2ForCausalLM", where));
  s.gguf = GemmaGguf("gemma2", s, 46);
  s.gguf.own_head = false;
  s.gguf.windows = s.gguf.score_cap = s.gguf.logit_cap = true;
  if (s.attentions()[0]->score_cap == 0 || s.logit_cap == 0) s.gguf.missing = "scores or logits without a cap";
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadVaultGemma(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadCapped(config, "VaultGemmaForCausalLM", where));
  s.NameNorms({.feed_forward = "pre_feedforward_layernorm"});
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGemma3(const Json& config, const std::string& where) {
  DecoderDefaults defaults = {.vocab = 262208, .max_positions = 131072};
  defaults.rope = {.theta = 1000000, .layer_type = "full_attention"};
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLaterGemma(config, "Gemma3ForCausalLM", defaults, where));
  // The class has attn_logit_softcapping, and does not apply it.
  TEMPER_ASSIGN_OR_RETURN(s.logit_cap, ReadCap(config, "final_logit_softcapping", 0, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t pattern, IntOr(config, "sliding_window_pattern", 6, where));
  if (pattern < 1) {
    return Corrupt(fmt::format("{}: sliding_window_pattern is {}, should be at least 1", where, pattern));
  }
  TEMPER_RETURN_IF_ERROR(SetGemmaWindows(config, pattern, where, &s));
  // rope_theta and rope_scaling of older files are those of the layers without a window.
  Json sliding = config;
  sliding.erase("rope_scaling");
  sliding.erase("rope_theta");
  TEMPER_ASSIGN_OR_RETURN(defaults.rope.theta, NumberOr(config, "rope_local_base_freq", 10000, where));
  TEMPER_ASSIGN_OR_RETURN(s.ropes.emplace_back(), ReadRope(sliding, "sliding_attention", defaults.rope,
                                                           s.attentions()[0]->head_dim, s.facts.max_positions, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->rope = a->window > 0 ? 1 : 0;
  }
  s.gguf = GemmaGguf("gemma3", s, 62);
  s.gguf.windows = s.gguf.logit_cap = true;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
