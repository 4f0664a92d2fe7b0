// CTRL 1.6B (Keskar et al. 2019; transformers, CTRLLMHeadModel): layer norms before each part, sinusoids in the place
// of learned positions, scaled embeddings, an MLP of ReLU without gate, a bias of the head.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadCtrl(const Json& file, const std::string& where) {
  Json config = WithOwnKeys(file, {{"hidden_size", "n_embd"},
                                   {"num_hidden_layers", "n_layer"},
                                   {"num_attention_heads", "n_head"},
                                   {"max_position_embeddings", "n_positions"}});
  for (const char* key : {"hidden_act", "attention_dropout"}) config.erase(key);  // which the class has not
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "CTRLLMHeadModel",
                                                     {.keys = {.hidden = "n_embd",
                                                               .ffn = "dff",
                                                               .blocks = "n_layer",
                                                               .heads = "n_head",
                                                               .max_positions = "n_positions",
                                                               .norm_eps = "layer_norm_epsilon"},
                                                      .vocab = 246534,
                                                      .hidden = 1280,
                                                      .ffn = 8192,
                                                      .blocks = 48,
                                                      .heads = 16,
                                                      .max_positions = 256,
                                                      .activation = "relu",
                                                      .gated = false,
                                                      .tied = true,
                                                      .plain_heads = true,
                                                      .rotary = false},
                                                     where));
  if (s.hidden % 2 != 0) return Unsupported(where + ": sinusoids of an odd n_embd are not supported");
  const double eps = s.norm.eps;
  s.SetNorm({NormKind::kLayer, 1e-6});  // of blocks, the class's own; the key is that of the last norm
  s.norm.eps = eps;
  s.names = {.prefix = "transformer.", .embedding = "w", .blocks = "h.", .final_norm = "layernorm"};
  s.NameNorms({.mixer = "layernorm1", .feed_forward = "layernorm2"});
  s.head_bias = true;
  s.facts.positions_are_learned = true;  // the class's table of sinusoids ends there, too
  s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  // f32, as in transformers.
  for (int64_t e = 0; e < s.hidden; e += 2) {
    s.sinusoids.push_back(
        static_cast<double>(1 / std::pow(10000.0f, static_cast<float>(e) / static_cast<float>(s.hidden))));
  }
  for (AttentionSpec* const a : s.attentions()) {
    a->path = "multi_head_attention.";
    a->q = "Wq";
    a->k = "Wk";
    a->v = "Wv";
    a->out = "dense";
    a->qkv_bias = a->out_bias = true;
  }
  for (MlpSpec* const m : s.mlps()) {
    m->up = "ffn.0";
    m->down = "ffn.2";
    m->bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embd_pdrop", 0.1, where, &s.facts));
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_pdrop", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
