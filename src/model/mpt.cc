// MPT, 7B and 30B (MosaicML 2023; transformers, MptForCausalLM): layer norms without shift, ALiBi in the place of
// positions, products without biases, an MLP without gate; q, k and v in one tensor, and perhaps bounded. The class
// computes so whatever else the configuration says of positions, biases and norms.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/alibi.h"
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadMpt(const Json& file, const std::string& where) {
  Json config = WithOwnKeys(
      file, {{"hidden_size", "d_model"}, {"num_hidden_layers", "n_layers"}, {"num_attention_heads", "n_heads"}});
  for (const char* key : {"intermediate_size", "hidden_act", "attention_dropout"})
    config.erase(key);  // not the class's
  Json attention = Json::object();
  if (const auto given = config.find("attn_config"); given != config.end() && !given->is_null()) {
    if (!given->is_object()) return Corrupt(where + ": attn_config should be an object");
    attention = *given;
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "MptForCausalLM",
                                                     {.keys = {.hidden = "d_model",
                                                               .blocks = "n_layers",
                                                               .heads = "n_heads",
                                                               .max_positions = "max_seq_len",
                                                               .norm_eps = "layer_norm_epsilon"},
                                                      .vocab = 50368,
                                                      .hidden = 2048,
                                                      .blocks = 24,
                                                      .heads = 16,
                                                      .max_positions = 2048,
                                                      .norm_eps = 1e-5,
                                                      .activation = "gelu",
                                                      .gated = false,
                                                      .tied = true,
                                                      .plain_heads = true,
                                                      .rotary = false},
                                                     where));
  s.SetNorm(NormKind::kLayerNoShift);
  s.names = {.prefix = "transformer.", .embedding = "wte", .blocks = "blocks.", .final_norm = "norm_f"};
  s.NameNorms({.mixer = "norm_1", .feed_forward = "norm_2"});
  const std::string in_attention = where + ", attn_config";
  TEMPER_ASSIGN_OR_RETURN(const double clip, NumberOr(attention, "clip_qkv", 0, in_attention));
  TEMPER_ASSIGN_OR_RETURN(const double scale, NumberOr(attention, "softmax_scale", 0, in_attention));
  const bool scaled = attention.contains("softmax_scale") && !attention["softmax_scale"].is_null();
  if (!(clip >= 0) || (scaled && !(scale > 0))) {
    return Corrupt(fmt::format("{}: clip_qkv is {} and softmax_scale {}; they should be positive, or null",
                               in_attention, clip, scale));
  }
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "attn.";
    a->qkv = "Wqkv";
    a->out = "out_proj";
    a->fused_qkv = true;
    a->clip = clip;
    a->scale = scaled ? scale : 1 / std::sqrt(static_cast<double>(a->head_dim));
    a->slopes = AlibiSlopes(a->heads);
    for (double& slope : a->slopes) slope /= a->scale;  // before scores are scaled
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "ffn.up_proj";
    m->down = "ffn.down_proj";
  }
  // Of attention's weights it is not applied, as elsewhere; of both parts' outputs it is.
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(attention, "attn_pdrop", 0, in_attention, &s.facts));
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(attention, "attn_pdrop", 0, in_attention, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  s.gguf = {.name = "mpt",
            .activation = Activation::kGelu,
            .clips = true,
            .alibi = true,
            .fused_qkv = true,
            .keys = {{"attention.max_alibi_bias", 8.0f}}};
  if (clip > 0) s.gguf.keys.emplace_back("attention.clamp_kqv", static_cast<float>(clip));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
