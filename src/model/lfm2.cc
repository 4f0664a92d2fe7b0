// LFM2 and 2.5 (Liquid AI 2025; transformers, Lfm2ForCausalLM): most blocks mix tokens by a gated short convolution,
// the others by attention with a norm of each head's q and k.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

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
    m->gate = "feed_forward.w1";
    m->up = "feed_forward.w3";
    m->down = "feed_forward.w2";
  }
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->out = "out_proj";
    a->q_norm = "q_layernorm";
    a->k_norm = "k_layernorm";
  }
  ShortConvSpec conv;
  TEMPER_ASSIGN_OR_RETURN(conv.taps, IntOr(config, "conv_L_cache", 3, where));
  TEMPER_ASSIGN_OR_RETURN(conv.bias, BoolOr(config, "conv_bias", false, where));
  if (conv.taps < 1 || conv.taps > kMaxConvTaps) {
    return Unsupported(fmt::format("{}: conv_L_cache is {}; convolutions of 1 to {} tokens are supported", where,
                                   conv.taps, kMaxConvTaps));
  }
  TEMPER_ASSIGN_OR_RETURN(std::vector<bool> attention, ReadAttentionLayers(config, "conv", s.blocks.size(), where));
  if (attention.empty()) {
    TEMPER_ASSIGN_OR_RETURN(attention, ListedLayers(config, s.blocks.size(), where));
  }
  for (size_t b = 0; b < attention.size(); ++b) {
    if (!attention[b]) s.blocks[b].mixer = conv;
  }
  return MakeDecoder(std::move(s));
}

}  // namespace temper
