// GPT-J 6B (Wang and Komatsuzaki 2021; transformers, GPTJForCausalLM): attention and MLP run in parallel behind one
// layer norm, an MLP without gate, a rotary embedding of interleaved pairs of a part of each head, and a bias of the
// head. CodeGen (Nijkamp et al. 2022; CodeGenForCausalLM): the same with q, v and k in one tensor, cut for four
// devices.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

constexpr DecoderDefaults kGptJDefaults = {.keys = {.hidden = "n_embd",
                                                    .ffn = "n_inner",
                                                    .blocks = "n_layer",
                                                    .heads = "n_head",
                                                    .max_positions = "n_positions",
                                                    .norm_eps = "layer_norm_epsilon",
                                                    .activation = "activation_function",
                                                    .attention_dropout = "attn_pdrop"},
                                           .vocab = 50400,
                                           .hidden = 4096,
                                           .blocks = 28,
                                           .heads = 16,
                                           .max_positions = 2048,
                                           .norm_eps = 1e-5,
                                           .activation = "gelu_new",
                                           .gated = false,
                                           .plain_heads = true,
                                           .rotary = false};  // read below

// What both share.
Result<DecoderSpec> ReadGptJs(const Json& file, const char* architecture, const std::string& where) {
  const Json config = WithOwnKeys(file, {{"hidden_size", "n_embd"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"max_position_embeddings", "n_positions"}});
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture, kGptJDefaults, where));
  s.SetNorm(NormKind::kLayer);
  s.names = {.prefix = "transformer.", .embedding = "wte", .blocks = "h.", .final_norm = "ln_f"};
  s.NameNorms({.mixer = "ln_1", .feed_forward = ""});
  s.head_bias = true;
  // The classes read no other key of rotary embeddings.
  const int64_t head_dim = s.attentions()[0]->head_dim;
  TEMPER_ASSIGN_OR_RETURN(const int64_t rotary, IntOr(config, "rotary_dim", 64, where));
  if (rotary < 2 || rotary % 2 != 0 || rotary > head_dim) {
    return Corrupt(fmt::format("{}: rotary_dim is {}, should be even, at least 2 and at most the {} elements of a head",
                               where, rotary, head_dim));
  }
  TEMPER_ASSIGN_OR_RETURN(RopeSpec rope, ReadRope(Json::object(), nullptr, {}, rotary, s.facts.max_positions, where));
  rope.interleaved = true;
  s.ropes = {std::move(rope)};
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "attn.";
    a->out = "out_proj";
    a->rope = 0;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.fc_in";
    m->down = "mlp.fc_out";
    m->bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_pdrop", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.parallel = true;
    block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  }
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embd_pdrop", 0, where, &s.facts));
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadGptJ(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGptJs(config, "GPTJForCausalLM", where));
  s.facts.ignored = {".attn.bias", ".attn.masked_bias"};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadCodeGen(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadGptJs(config, "CodeGenForCausalLM", where));
  s.facts.ignored = {".attn.causal_mask"};
  constexpr int64_t kParts = 4;  // devices that the published models were trained on (CodeGenAttention::mp_num)
  if (s.hidden % kParts != 0) {
    return Corrupt(fmt::format("{}: n_embd is {}, should be a multiple of {}", where, s.hidden, kParts));
  }
  for (AttentionSpec* const a : s.attentions()) a->qvk_parts = kParts;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
