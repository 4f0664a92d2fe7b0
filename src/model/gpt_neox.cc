// GPT-NeoX 20B and Pythia (Black et al. 2022, Biderman et al. 2023; transformers, GPTNeoXForCausalLM): layer norms,
// attention and MLP in parallel with a norm each, an ungated MLP, a rotary embedding of a quarter of each head; q, k
// and v in one tensor, head by head. GPT-NeoX Japanese 2.7B (ABEJA 2022; GPTNeoXJapaneseForCausalLM): a part after the
// other, and a single bias, of attention's last product in the last block.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

namespace {

// The classes have names of their own for what stands beside the parameters of scaling, and read no others.
Json WithUsualRopeKeys(const Json& config) {
  Json renamed = config;
  for (const auto& [own, usual] :
       {std::pair{"rotary_emb_base", "rope_theta"}, {"rotary_pct", "partial_rotary_factor"}}) {
    renamed.erase(usual);
    if (config.contains(own)) renamed[usual] = config[own];
  }
  return renamed;
}

void NameParts(DecoderSpec* s) {
  for (AttentionSpec* const a : s->attentions()) {
    a->path = "attention.";
    a->qkv = "query_key_value";
    a->out = "dense";
    a->fused_qkv = a->qkv_by_kv_head = true;
  }
  for (MlpSpec* const m : s->mlps()) {
    m->up = "mlp.dense_h_to_4h";
    m->down = "mlp.dense_4h_to_h";
  }
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGptNeoX(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(WithUsualRopeKeys(config), "GPTNeoXForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 50432,
                                                      .hidden = 6144,
                                                      .ffn = 24576,
                                                      .blocks = 44,
                                                      .heads = 64,
                                                      .max_positions = 2048,
                                                      .norm_eps = 1e-5,
                                                      .activation = "gelu",
                                                      .gated = false,
                                                      .plain_heads = true,
                                                      .rope = {.partial = 0.25}},
                                                     where));
  // The class rotates by this key alone and cuts heads by the sizes: files that differ are broken there, too.
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  s.SetNorm(NormKind::kLayer);
  s.names = {
      .prefix = "gpt_neox.", .embedding = "embed_in", .final_norm = "final_layer_norm", .head_in_files = "embed_out"};
  s.facts.ignored = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"};
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", true, where));
  NameParts(&s);
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  for (MlpSpec* const m : s.mlps()) m->bias = true;
  TEMPER_ASSIGN_OR_RETURN(const bool parallel, BoolOr(config, "use_parallel_residual", true, where));
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.parallel = parallel;
    block.mixer_out_dropout = block.feed_forward_out_dropout = s.embedding_dropout;
  }
  s.gguf = {.name = "gptneox",
            .activation = Activation::kGelu,
            .out_bias = true,
            .mlp_bias = true,
            .needs_head = true,
            .parallel = true,
            .fused_qkv = true,
            .keys = {{"use_parallel_residual", parallel}},
            .missing = bias ? "" : "products without biases"};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGptNeoXJapanese(const Json& file, const std::string& where) {
  Json config = WithUsualRopeKeys(file);
  TEMPER_ASSIGN_OR_RETURN(const int64_t hidden, IntOr(config, "hidden_size", 2560, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t multiple, IntOr(config, "intermediate_multiple_size", 4, where));
  if (!IsSane(hidden, kMaxWidth) || !IsSane(multiple, kMaxWidth)) {
    return Corrupt(fmt::format("{}: hidden_size {} times intermediate_multiple_size {} is no size of an MLP", where,
                               hidden, multiple));
  }
  config["intermediate_size"] = hidden * multiple;
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "GPTNeoXJapaneseForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 32000,
                                                      .hidden = 2560,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 2048,
                                                      .norm_eps = 1e-5,
                                                      .attention_dropout = 0.1,
                                                      .activation = "gelu",
                                                      .gated = false,
                                                      .tied = true,
                                                      .plain_heads = true,
                                                      .rope = {.may_be_partial = true}},
                                                     where));
  TEMPER_RETURN_IF_ERROR(ExpectPlainHeadDim(config, s, where));
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "gpt_neox_japanese.",
             .embedding = "embed_in",
             .final_norm = "final_layer_norm",
             .head = "embed_out",
             .in_files = {{"attention.dense.bias", "attention.dense_bias"}}};
  s.facts.ignored = {".rotary_emb.inv_freq"};
  NameParts(&s);
  s.attentions().back()->out_bias = true;  // of the last block alone
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "hidden_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
