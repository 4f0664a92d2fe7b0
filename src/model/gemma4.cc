// Gemma 4 (Gemma Team 2026; transformers, Gemma4ForCausalLM, the text model of Gemma4ForConditionalGeneration; of the
// 12B size Gemma4UnifiedForCausalLM and Gemma4UnifiedForConditionalGeneration): as Gemma 3, with norms that scale by w,
// norms of values, and scores that are not scaled. Layers of full attention have heads of another size, whose first
// pairs turn, and perhaps no product for values. The last layers may take keys and values of earlier ones, and each
// block may add a vector of its own for each token. A block's result is multiplied by a number of the file.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

constexpr char kSliding[] = "sliding_attention", kFull[] = "full_attention";

bool Has(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && !it->is_null();
}

// Which layers are of full attention. The class makes the last one such, whatever the file says.
Result<std::vector<bool>> ReadFullLayers(const Json& config, size_t layers, const std::string& where) {
  constexpr size_t kPattern = 6;
  TEMPER_ASSIGN_OR_RETURN(std::vector<bool> full, ReadAttentionLayers(config, kSliding, layers, where));
  for (size_t i = full.size(); i < layers; ++i) full.push_back((i + 1) % kPattern == 0);
  full.back() = true;
  return full;
}

struct HeadSizes {
  int64_t kv_heads, head_dim;
  friend bool operator==(const HeadSizes&, const HeadSizes&) = default;
};

// The heads of layers of full attention; `others`: of the other layers. Files have them at the top, or by layer.
Result<HeadSizes> ReadFullHeads(const Json& config, const std::vector<bool>& full, const HeadSizes& others, bool k_eq_v,
                                const std::string& where) {
  HeadSizes sizes = others;
  if (!Has(config, "per_layer_config")) {
    TEMPER_ASSIGN_OR_RETURN(sizes.head_dim, IntOr(config, "global_head_dim", 512, where));
    if (k_eq_v && Has(config, "num_global_key_value_heads")) {
      TEMPER_ASSIGN_OR_RETURN(sizes.kv_heads, IntOr(config, "num_global_key_value_heads", 0, where));
    }
    return sizes;
  }
  const Json& by_layer = config["per_layer_config"];
  if (!by_layer.is_object()) return Corrupt(where + ": per_layer_config should be a JSON object");
  std::vector<HeadSizes> all(full.size(), others);
  for (const auto& [key, layer] : by_layer.items()) {
    const auto is_key = [&](size_t i) { return std::to_string(i) == key; };
    size_t at = 0;
    while (at < full.size() && !is_key(at)) ++at;
    if (at == full.size() || !layer.is_object()) {
      return Corrupt(
          fmt::format("{}: {} of per_layer_config is no layer with an object of its sizes", where, key.substr(0, 40)));
    }
    for (const auto& [name, value] : layer.items()) {
      if (name == "head_dim" || name == "num_key_value_heads") continue;
      return Unsupported(
          fmt::format("{}: per_layer_config sets {} of layer {}; supported are head_dim and "
                      "num_key_value_heads",
                      where, name.substr(0, 40), at));
    }
    const std::string inside = fmt::format("{}: per_layer_config {}", where, at);
    TEMPER_ASSIGN_OR_RETURN(all[at].head_dim, IntOr(layer, "head_dim", others.head_dim, inside));
    TEMPER_ASSIGN_OR_RETURN(all[at].kv_heads, IntOr(layer, "num_key_value_heads", others.kv_heads, inside));
  }
  sizes = all.back();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == (full[i] ? sizes : others)) continue;
    return Unsupported(fmt::format("{}: per_layer_config gives layer {} other heads than other layers of {} have",
                                   where, i, full[i] ? kFull : kSliding));
  }
  return sizes;
}

// The first of the layers that take keys and values of earlier ones.
Result<size_t> ReadFirstSharing(const Json& config, const std::vector<bool>& full, const std::string& where) {
  const auto layers = static_cast<int64_t>(full.size());
  TEMPER_ASSIGN_OR_RETURN(const int64_t shared, IntOr(config, "num_kv_shared_layers", 0, where));
  if (shared < 0 || shared > layers) {
    return Corrupt(fmt::format("{}: num_kv_shared_layers is {}, of {} layers", where, shared, layers));
  }
  const auto first = static_cast<size_t>(layers - shared);
  for (size_t i = first; i < full.size(); ++i) {
    if (std::find(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(first), full[i]) !=
        full.begin() + static_cast<std::ptrdiff_t>(first)) {
      continue;
    }
    return Unsupported(fmt::format(
        "{}: num_kv_shared_layers is {}, so that layer {} takes keys and values of {}, which no layer before {} makes",
        where, shared, i, full[i] ? kFull : kSliding, first));
  }
  return first;
}

Status RefuseOthers(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const bool experts, BoolOr(config, "enable_moe_block", false, where));
  if (experts) {
    return Unsupported(
        where +
        ": enable_moe_block is true: experts beside the MLP (26B-A4B) are not supported; the dense sizes "
        "(E2B, E4B, 12B, 31B) are");
  }
  if (Has(config, "use_bidirectional_attention") && config["use_bidirectional_attention"] != "vision") {
    return Unsupported(
        fmt::format("{}: use_bidirectional_attention is {}; supported are null and vision, by which text "
                    "attends to what came before",
                    where, DumpJson(config["use_bidirectional_attention"]).substr(0, 40)));
  }
  return OkStatus();
}

Result<PerLayerSpec> ReadPerLayer(const Json& config, const DecoderSpec& s, const std::string& where) {
  PerLayerSpec spec{.activation = std::get<MlpSpec>(s.blocks[0].feed_forward).activation, .norm = s.norm};
  if (config.contains("hidden_size_per_layer_input") && config["hidden_size_per_layer_input"].is_null()) return spec;
  TEMPER_ASSIGN_OR_RETURN(spec.width, IntOr(config, "hidden_size_per_layer_input", 256, where));
  TEMPER_ASSIGN_OR_RETURN(spec.vocab, IntOr(config, "vocab_size_per_layer_input", 262144, where));
  if (spec.width < 0 || spec.width > kMaxHeads || (spec.width > 0 && !IsSane(spec.vocab, kMaxRows))) {
    return Corrupt(fmt::format("{}: hidden_size_per_layer_input {} or vocab_size_per_layer_input {} is out of range",
                               where, spec.width, spec.vocab));
  }
  if (spec.width > 0 && spec.vocab < s.facts.vocab) {
    return Unsupported(
        fmt::format("{}: vocab_size_per_layer_input {} is less than vocab_size {}: tokens beyond it have no "
                    "row",
                    where, spec.vocab, s.facts.vocab));
  }
  return spec;
}

Result<std::unique_ptr<Model>> ReadGemmas4(const Json& file, const char* architecture, int64_t max_positions,
                                           int64_t default_window, bool per_layer, const std::string& where) {
  Json config = file;  // rotary embeddings are in rope_parameters alone
  for (const char* const key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) config.erase(key);
  DecoderDefaults defaults = {.keys = {.activation = "hidden_activation"},
                              .vocab = 262144,
                              .hidden = 2304,
                              .ffn = 9216,
                              .blocks = 30,
                              .heads = 8,
                              .max_positions = max_positions,
                              .kv_heads = 4,
                              .head_dim = 256,
                              .activation = "gelu_pytorch_tanh",
                              .tied = true};
  defaults.rope.layer_type = kSliding;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  TEMPER_RETURN_IF_ERROR(RefuseOthers(config, where));
  s.names.other_prefix = "model.language_model.";  // as files of the multimodal class have the text model
  s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.scales_in_embedding = s.rounds_embedding_scale = true;
  s.NameNorms({.feed_forward = "pre_feedforward_layernorm",
               .mixer_out = "post_attention_layernorm",
               .feed_forward_out = "post_feedforward_layernorm"});
  if (Has(config, "final_logit_softcapping")) {
    TEMPER_ASSIGN_OR_RETURN(s.logit_cap, NumberOr(config, "final_logit_softcapping", 0, where));
    if (!(s.logit_cap > 0)) {
      return Corrupt(fmt::format("{}: final_logit_softcapping is {}, should be positive or null", where, s.logit_cap));
    }
  }
  if (per_layer) {
    TEMPER_ASSIGN_OR_RETURN(s.per_layer, ReadPerLayer(config, s, where));
  }

  TEMPER_ASSIGN_OR_RETURN(const std::vector<bool> full, ReadFullLayers(config, s.blocks.size(), where));
  TEMPER_ASSIGN_OR_RETURN(const bool k_eq_v, BoolOr(config, "attention_k_eq_v", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const bool double_wide, BoolOr(config, "use_double_wide_mlp", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, default_window, where));
  if (window == 0 && std::find(full.begin(), full.end(), false) != full.end()) {
    return Corrupt(where + ": sliding_window is null or 0, and there are layers of sliding attention");
  }
  const AttentionSpec& plain = *s.attentions()[0];
  const HeadSizes sliding{plain.kv_heads, plain.head_dim};
  TEMPER_ASSIGN_OR_RETURN(const HeadSizes wide, ReadFullHeads(config, full, sliding, k_eq_v, where));
  if (!IsSane(wide.head_dim, kMaxHeads) || wide.head_dim % 2 != 0 || !IsSane(wide.kv_heads, kMaxHeads) ||
      plain.heads % wide.kv_heads != 0) {
    return Corrupt(fmt::format("{}: layers of full attention have heads of {} elements and {} KV heads, of {} heads",
                               where, wide.head_dim, wide.kv_heads, plain.heads));
  }
  defaults.rope.layer_type = kFull;
  if (!Has(config, "rope_parameters")) {
    defaults.rope = {.theta = 1000000, .partial = 0.25, .layer_type = kFull, .type = "proportional"};
  }
  TEMPER_ASSIGN_OR_RETURN(s.ropes.emplace_back(),
                          ReadRope(config, kFull, defaults.rope, wide.head_dim, s.facts.max_positions, where));
  TEMPER_ASSIGN_OR_RETURN(const size_t first_sharing, ReadFirstSharing(config, full, where));
  for (size_t i = 0; i < full.size(); ++i) {
    DecoderBlock& block = s.blocks[i];
    block.factor = "layer_scalar";
    auto& a = std::get<AttentionSpec>(block.mixer);
    a.scale = 1;
    a.qk_norm = AttentionSpec::QkNorm::kHeads;
    a.norms_v = true;
    a.qkv_bias = a.out_bias = bias;
    a.window = full[i] ? 0 : window;
    a.rope = full[i] ? 1 : 0;
    if (full[i]) {
      a.kv_heads = wide.kv_heads;
      a.head_dim = wide.head_dim;
      a.v_is_k = k_eq_v;
    }
    const char* const type = full[i] ? kFull : kSliding;
    const auto next = std::find(full.begin() + static_cast<std::ptrdiff_t>(i) + 1, full.end(), full[i]) - full.begin();
    if (i >= first_sharing) {
      a.takes = type;
      a.norms_v = a.v_is_k = false;
      for (const char* const name : {"k_proj", "v_proj", "k_norm"}) {
        s.facts.ignored.push_back(fmt::format(".layers.{}.self_attn.{}.weight", i, name));
      }
      if (double_wide) std::get<MlpSpec>(block.feed_forward).ffn *= 2;
    } else if (next >= static_cast<std::ptrdiff_t>(first_sharing) && next < std::ssize(full)) {
      a.publishes = type;
    }
  }
  return MakeDecoder(std::move(s));
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGemma4(const Json& config, const std::string& where) {
  return ReadGemmas4(config, "Gemma4ForCausalLM", 131072, 512, /*per_layer=*/true, where);
}

Result<std::unique_ptr<Model>> ReadGemma4Unified(const Json& config, const std::string& where) {
  return ReadGemmas4(config, "Gemma4UnifiedForCausalLM", 262144, 1024, /*per_layer=*/false, where);
}

}  // namespace temper
