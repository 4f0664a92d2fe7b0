// XGLM, 564M to 7.5B (Lin et al. 2021; transformers, XGLMForCausalLM): layer norms, sinusoids in the place of learned
// positions, scaled embeddings, an MLP without gate.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadXglm(const Json& file, const std::string& where) {
  const Json config = WithOwnKeys(
      file,
      {{"hidden_size", "d_model"}, {"num_hidden_layers", "num_layers"}, {"num_attention_heads", "attention_heads"}});
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "XGLMForCausalLM",
                                                     {.keys = {.hidden = "d_model",
                                                               .ffn = "ffn_dim",
                                                               .blocks = "num_layers",
                                                               .heads = "attention_heads",
                                                               .activation = "activation_function",
                                                               .initializer_range = "init_std"},
                                                      .vocab = 256008,
                                                      .hidden = 1024,
                                                      .ffn = 4096,
                                                      .blocks = 24,
                                                      .heads = 16,
                                                      .max_positions = 2048,
                                                      .attention_dropout = 0.1,
                                                      .activation = "gelu",
                                                      .gated = false,
                                                      .tied = true,
                                                      .plain_heads = true,
                                                      .rotary = false},
                                                     where));
  if (s.hidden % 2 != 0 || s.hidden < 4) {
    return Unsupported(where + ": sinusoids of an odd d_model, or of fewer than 4, are not supported");
  }
  TEMPER_ASSIGN_OR_RETURN(const bool crossed, BoolOr(config, "add_cross_attention", false, where));
  if (crossed) return Unsupported(where + ": add_cross_attention (an encoder's output) is not supported");
  s.SetNorm({NormKind::kLayer, 1e-5});  // torch.nn.LayerNorm's default; there is no key
  s.names.final_norm = "layer_norm";
  s.NameNorms({.mixer = "self_attn_layer_norm", .feed_forward = "final_layer_norm"});
  s.facts.ignored = {".embed_positions.weights"};
  // Frequencies from 1 to 1/10000, geometrically; position 0 counts as 2. f32, as in transformers.
  const int64_t half = s.hidden / 2;
  const double step = std::log(10000.0) / static_cast<double>(half - 1);
  for (int64_t e = 0; e < half; ++e) {
    s.sinusoids.push_back(static_cast<double>(std::exp(static_cast<float>(e) * -static_cast<float>(step))));
  }
  s.sinusoid_shift = 2;
  TEMPER_ASSIGN_OR_RETURN(const bool scaled, BoolOr(config, "scale_embedding", true, where));
  if (scaled) s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
  s.scales_in_embedding = true;
  for (AttentionSpec* const a : s.attentions()) {
    a->out = "out_proj";
    a->qkv_bias = a->out_bias = true;
  }
  TEMPER_ASSIGN_OR_RETURN(const double inner, ReadDropout(config, "activation_dropout", 0, where, &s.facts));
  for (MlpSpec* const m : s.mlps()) {
    m->up = "fc1";
    m->down = "fc2";
    m->bias = true;
    m->dropout = inner;
  }
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "dropout", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) {
    block.mixer_out_dropout = block.feed_forward_out_dropout = s.embedding_dropout;
  }
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "layerdrop", 0, where, &s.facts));
  return MakeDecoder(std::move(s));
}

}  // namespace temper
