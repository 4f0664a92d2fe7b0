// LFM2 and 2.5 (Liquid AI 2025; transformers, Lfm2ForCausalLM): most blocks mix tokens by a gated short convolution,
// the others by attention with a norm of each head's q and k. LFM3 (2026; Lfm3ForCausalLM): also norms behind both
// parts, a gate for each head of attention, and windows with a rotary embedding of their own in every other such layer.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "graph/ops/short_conv.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

// The width of the MLP, as the class makes it of the file's: two thirds, a factor, then up to a multiple.
Result<int64_t> WidthOf(const Json& config, int64_t given, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const bool adjusts, BoolOr(config, "block_auto_adjust_ff_dim", true, where));
  if (!adjusts) return given;
  const auto width = static_cast<int64_t>(static_cast<double>(2 * given) / 3);
  if (width < 1) return Corrupt(fmt::format("{}: intermediate_size {} leaves no width of an MLP", where, given));
  const auto factor_of = config.find("block_ffn_dim_multiplier");
  if (factor_of != config.end() && factor_of->is_null()) return width;
  TEMPER_ASSIGN_OR_RETURN(const double factor, NumberOr(config, "block_ffn_dim_multiplier", 1, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t multiple, IntOr(config, "block_multiple_of", 256, where));
  const double scaled = factor * static_cast<double>(width);
  if (!(scaled >= 1) || !(scaled <= kMaxWidth) || !IsSane(multiple, kMaxWidth)) {
    return Corrupt(fmt::format("{}: block_ffn_dim_multiplier {} or block_multiple_of {} gives no width of an MLP",
                               where, factor, multiple));
  }
  const int64_t rounded = multiple * ((static_cast<int64_t>(scaled) + multiple - 1) / multiple);
  if (rounded <= kMaxWidth) return rounded;
  return Corrupt(
      fmt::format("{}: block_multiple_of {} makes an MLP of width {}, out of range", where, multiple, rounded));
}

// Without layer_types: the layers that full_attn_idxs lists are of attention; all, where it is missing.
Result<std::vector<bool>> ListedLayers(const Json& config, size_t layers, const std::string& where) {
  const auto indices = config.find("full_attn_idxs");
  if (indices == config.end() || indices->is_null()) return std::vector<bool>(layers, true);
  std::vector<bool> attention(layers, false);
  bool good = indices->is_array();
  for (const Json& index : *indices) {
    good = good && index.is_number_integer() && index.get<int64_t>() >= 0;
    if (good && index.get<uint64_t>() < layers) attention[index.get<size_t>()] = true;
  }
  if (!good) return Corrupt(where + ": full_attn_idxs should be a list of layers");
  return attention;
}

// `taps`: those of the class.
Result<ShortConvSpec> ReadConvolution(const Json& config, int64_t taps, const std::string& where) {
  ShortConvSpec conv;
  TEMPER_ASSIGN_OR_RETURN(conv.taps, IntOr(config, "conv_L_cache", taps, where));
  TEMPER_ASSIGN_OR_RETURN(conv.bias, BoolOr(config, "conv_bias", false, where));
  if (conv.taps >= 1 && conv.taps <= kMaxConvTaps) return conv;
  return Unsupported(fmt::format("{}: conv_L_cache is {}; convolutions of 1 to {} tokens are supported", where,
                                 conv.taps, kMaxConvTaps));
}

void NameMlps(DecoderSpec* s) {
  for (MlpSpec* const m : s->mlps()) {
    m->gate = "feed_forward.w1";
    m->up = "feed_forward.w3";
    m->down = "feed_forward.w2";
  }
}

constexpr char kFull[] = "full_attention", kSliding[] = "sliding_attention", kConv[] = "conv";

// The type of each layer of LFM3; the class's own where the file lists none.
Result<std::vector<std::string>> ReadLayerTypes(const Json& config, size_t layers, const std::string& where) {
  std::vector<std::string> types;
  const auto given = config.find("layer_types");
  if (given == config.end() || given->is_null()) {
    for (size_t i = 0; i < layers; ++i) types.emplace_back(i % 4 == 2 ? kFull : i % 4 == 0 && i > 0 ? kSliding : kConv);
    return types;
  }
  if (!given->is_array() || given->size() != layers) {
    return Corrupt(
        fmt::format("{}: layer_types should be a list with an entry for each of the {} layers", where, layers));
  }
  for (const Json& type : *given) {
    if (type != kFull && type != kSliding && type != kConv) {
      return Unsupported(fmt::format("{}: layer {} of layer_types is {}; supported are {}, {} and {}", where,
                                     types.size(), DumpJson(type).substr(0, 40), kFull, kSliding, kConv));
    }
    types.push_back(type.get<std::string>());
  }
  return types;
}

// One for each type of layer, as the class has them.
Result<Json> WithRopes(Json config, const std::string& where) {
  const auto given = config.find("rope_parameters");
  if (given == config.end() || given->is_null()) {
    config["rope_parameters"] = {
        {kSliding, {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {kFull, {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}}}};
  } else if (!given->is_object() || !(given->contains(kFull) || given->contains(kSliding))) {
    return Corrupt(where + ": rope_parameters should have an object for each type of layer, as full_attention");
  }
  for (const char* unread : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) config.erase(unread);
  return config;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadLfm2(const Json& file, const std::string& where) {
  Json config = file;
  for (const char* unread : {"hidden_act", "attention_dropout"}) config.erase(unread);  // by the class
  for (const auto& [first, usual] :
       {std::pair{"tie_embedding", "tie_word_embeddings"}, {"block_ff_dim", "intermediate_size"}}) {
    if (config.contains(first)) config[usual] = config[first];
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Lfm2ForCausalLM",
                                                     {.keys = {.norm_eps = "norm_eps"},
                                                      .vocab = 65536,
                                                      .hidden = 2560,
                                                      .ffn = 12288,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 128000,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5,
                                                      .tied = true,
                                                      .rope = {.theta = 1000000}},
                                                     where));
  s.names.final_norm = "embedding_norm";
  s.facts.tied_keys = {"/tie_word_embeddings", "/tie_embedding"};
  s.NameNorms({.mixer = "operator_norm", .feed_forward = "ffn_norm"});
  for (MlpSpec* const m : s.mlps()) {
    TEMPER_ASSIGN_OR_RETURN(m->ffn, WidthOf(config, m->ffn, where));
  }
  NameMlps(&s);
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->out = "out_proj";
    a->q_norm = "q_layernorm";
    a->k_norm = "k_layernorm";
  }
  TEMPER_ASSIGN_OR_RETURN(const ShortConvSpec conv, ReadConvolution(config, 3, where));
  TEMPER_ASSIGN_OR_RETURN(std::vector<bool> attention, ReadAttentionLayers(config, "conv", s.blocks.size(), where));
  if (attention.empty()) {
    TEMPER_ASSIGN_OR_RETURN(attention, ListedLayers(config, s.blocks.size(), where));
  }
  for (size_t b = 0; b < attention.size(); ++b) {
    if (!attention[b]) s.blocks[b].mixer = conv;
  }
  s.gguf = {.name = "lfm2", .mixer = GgufArchitecture::Mixer::kShortConv, .final_norm = "token_embd_norm"};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadLfm3(const Json& file, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(Json config, WithRopes(WithOwnKeys(file, {{"rms_norm_eps", "norm_eps"}}), where));
  config.erase("hidden_act");  // which the class has not
  DecoderDefaults defaults = {.keys = {.norm_eps = "norm_eps"},
                              .vocab = 128000,
                              .hidden = 2048,
                              .ffn = 7680,
                              .blocks = 24,
                              .heads = 16,
                              .max_positions = 128000,
                              .kv_heads = 4,
                              .head_dim = 128,
                              .norm_eps = 1e-5,
                              .tied = true,
                              .rope = {.theta = 1000000, .layer_type = kFull}};
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Lfm3ForCausalLM", defaults, where));
  TEMPER_ASSIGN_OR_RETURN(s.ropes.emplace_back(), ReadRope(config, kSliding, defaults.rope, s.attentions()[0]->head_dim,
                                                           s.facts.max_positions, where));
  s.names.final_norm = "embedding_norm";
  s.names.in_files = {{".g_proj", ".gate_proj"}};
  TEMPER_ASSIGN_OR_RETURN(const bool sandwich, BoolOr(config, "use_sandwich_norm", true, where));
  s.NameNorms({.mixer = "operator_norm",
               .feed_forward = "ffn_norm",
               .mixer_out = sandwich ? "post_operator_norm" : "",
               .feed_forward_out = sandwich ? "post_ffn_norm" : ""});
  NameMlps(&s);
  TEMPER_ASSIGN_OR_RETURN(const bool gated, BoolOr(config, "use_attention_gate", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 256, where));
  TEMPER_ASSIGN_OR_RETURN(const ShortConvSpec conv, ReadConvolution(config, 7, where));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> types, ReadLayerTypes(config, s.blocks.size(), where));
  for (size_t b = 0; b < types.size(); ++b) {
    if (types[b] == kConv) {
      s.blocks[b].mixer = conv;
      continue;
    }
    auto& a = std::get<AttentionSpec>(s.blocks[b].mixer);
    a.qk_norm = AttentionSpec::QkNorm::kHeads;
    a.qkv_bias = a.out_bias = bias;
    if (gated) a.head_gate = "g_proj";
    if (types[b] == kFull) continue;
    if (window == 0) {
      return Corrupt(
          fmt::format("{}: layer {} of layer_types is {}, but sliding_window sets no window", where, b, kSliding));
    }
    a.window = window;
    a.rope = 1;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
