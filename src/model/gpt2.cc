// GPT-2, 124M to 1.5B (Radford et al. 2019; transformers, GPT2LMHeadModel): layer norms, learned positions, an MLP
// without gate; q, k and v in one tensor, and weights in x out, as transformers' Conv1D has them. GPT (Radford et al.
// 2018; OpenAIGPTLMHeadModel): norms after the residual sums, none at the end. StarCoder and SantaCoder (Li et al.
// 2023; GPTBigCodeForCausalLM): GPT-2 with one KV head, and weights out x in.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

constexpr DecoderDefaults kGpt2Defaults = {.keys = {.hidden = "n_embd",
                                                    .ffn = "n_inner",
                                                    .blocks = "n_layer",
                                                    .heads = "n_head",
                                                    .max_positions = "n_positions",
                                                    .norm_eps = "layer_norm_epsilon",
                                                    .activation = "activation_function",
                                                    .attention_dropout = "attn_pdrop"},
                                           .vocab = 50257,
                                           .hidden = 768,
                                           .blocks = 12,
                                           .heads = 12,
                                           .max_positions = 1024,
                                           .norm_eps = 1e-5,
                                           .attention_dropout = 0.1,
                                           .activation = "gelu_new",
                                           .gated = false,
                                           .tied = true,
                                           .plain_heads = true,
                                           .rotary = false};

// What the three share.
Result<DecoderSpec> ReadGpt(const Json& file, const char* architecture, const DecoderDefaults& defaults,
                            const std::string& where) {
  const Json config = WithOwnKeys(file, {{"hidden_size", "n_embd"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"max_position_embeddings", "n_positions"}});
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, defaults, where));
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "transformer.", .embedding = "wte", .positions = "wpe", .blocks = "h.", .final_norm = "ln_f"};
  s.NameNorms({.mixer = "ln_1", .feed_forward = "ln_2"});
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "attn.";
    a->qkv = "c_attn";
    a->out = "c_proj";
    a->fused_qkv = a->qkv_bias = a->out_bias = true;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.c_fc";
    m->down = "mlp.c_proj";
    m->bias = true;
  }
  s.facts.ignored = {".attn.bias", ".attn.masked_bias"};
  s.facts.positions_are_learned = true;
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_pdrop", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embd_pdrop", 0.1, where, &s.facts));
  return s;
}

// Keys that GPT-2 and StarCoder have. reorder_and_upcast_attn, attention_softmax_in_fp32 and
// scale_attention_softmax_in_fp32 ask for scores and softmax in f32, which they are here anyway.
Status ReadScores(const Json& config, const std::string& where, DecoderSpec* spec) {
  TEMPER_ASSIGN_OR_RETURN(const bool cross, BoolOr(config, "add_cross_attention", false, where));
  if (cross) return Unsupported(where + ": add_cross_attention (attention to an encoder) is not supported");
  TEMPER_ASSIGN_OR_RETURN(const bool scaled, BoolOr(config, "scale_attn_weights", true, where));
  for (AttentionSpec* const a : spec->attentions()) {
    a->scale = scaled ? 1 / std::sqrt(static_cast<double>(a->head_dim)) : 1;
  }
  spec->init_by_depth = DecoderSpec::InitByDepth::kBoth;
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGpt2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGpt(config, "GPT2LMHeadModel", kGpt2Defaults, where));
  s.transposed = true;
  TEMPER_RETURN_IF_ERROR(ReadScores(config, where, &s));
  TEMPER_ASSIGN_OR_RETURN(const bool by_layer, BoolOr(config, "scale_attn_by_inverse_layer_idx", false, where));
  double layer = 0;
  for (AttentionSpec* const a : s.attentions()) a->scale /= by_layer ? ++layer : 1;
  s.gguf = {.name = "gpt2", .activation = Activation::kGeluTanh, .out_bias = true, .mlp_bias = true, .fused_qkv = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadGptBigCode(const Json& config, const std::string& where) {
  DecoderDefaults defaults = kGpt2Defaults;
  defaults.activation = "gelu_pytorch_tanh";
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGpt(config, "GPTBigCodeForCausalLM", defaults, where));
  TEMPER_RETURN_IF_ERROR(ReadScores(config, where, &s));
  TEMPER_ASSIGN_OR_RETURN(const bool multi_query, BoolOr(config, "multi_query", true, where));
  for (AttentionSpec* const a : s.attentions()) {
    if (multi_query) a->kv_heads = 1;
    a->qkv_by_kv_head = true;
  }
  s.gguf = {
      .name = "starcoder", .activation = Activation::kGeluTanh, .out_bias = true, .mlp_bias = true, .fused_qkv = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadOpenAiGpt(const Json& file, const std::string& where) {
  DecoderDefaults defaults = kGpt2Defaults;
  defaults.keys.activation = "afn";
  defaults.vocab = 40478;
  defaults.max_positions = 512;
  Json config = file;
  config.erase("n_inner");  // of GPT-2: here the MLP is always four times as wide as the model
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGpt(config, "OpenAIGPTLMHeadModel", defaults, where));
  // What the class calls gelu is the approximation by tanh.
  for (MlpSpec* const m : s.mlps()) {
    if (m->activation == Activation::kGelu) m->activation = Activation::kGeluTanh;
  }
  s.names.embedding = "tokens_embed";
  s.names.positions = "positions_embed";
  s.names.final_norm = "";
  s.transposed = true;
  for (DecoderBlock& block : s.blocks) block.norms.after_sums = true;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
