// StarCoder 2, 3B to 15B (Lozhkov et al. 2024; transformers, Starcoder2ForCausalLM): layer norms, biases, an MLP
// without gate, a window in all layers.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadStarcoder2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Starcoder2ForCausalLM",
                                                     {.keys = {.norm_eps = "norm_epsilon"},
                                                      .vocab = 49152,
                                                      .hidden = 3072,
                                                      .ffn = 12288,
                                                      .blocks = 30,
                                                      .heads = 24,
                                                      .max_positions = 4096,
                                                      .kv_heads = 2,
                                                      .norm_eps = 1e-5,
                                                      .initializer_range = 0.018042,
                                                      .activation = "gelu_pytorch_tanh",
                                                      .gated = false,
                                                      .tied = true},
                                                     where));
  s.SetNorm(NormKind::kLayer);
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "use_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  for (MlpSpec* const m : s.mlps()) {
    m->up = "mlp.c_fc";
    m->down = "mlp.c_proj";
    m->bias = bias;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "residual_dropout", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  TEMPER_ASSIGN_OR_RETURN(s.embedding_dropout, ReadDropout(config, "embedding_dropout", 0, where, &s.facts));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 0, where));
  for (AttentionSpec* const a : s.attentions()) a->window = window;
  s.gguf = {.name = "starcoder2",
            .activation = Activation::kGeluTanh,
            .out_bias = true,
            .mlp_bias = true,
            .missing = bias ? "" : "products without biases"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
