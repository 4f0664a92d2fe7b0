// Nemotron 3 and 4, Minitron (Parmar et al. 2024; transformers, NemotronForCausalLM): layer norms that scale by 1 + w,
// a rotary embedding of half of each head, an MLP without gate, whose activation is the square of ReLU.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadNemotron(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "NemotronForCausalLM",
                                                     {.keys = {.norm_eps = "norm_eps"},
                                                      .vocab = 256000,
                                                      .hidden = 6144,
                                                      .ffn = 24576,
                                                      .blocks = 32,
                                                      .heads = 48,
                                                      .max_positions = 4096,
                                                      .norm_eps = 1e-5,
                                                      .initializer_range = 0.0134,
                                                      .activation = "relu2",
                                                      .gated = false,
                                                      .rope = {.partial = 0.5}},
                                                     where));
  s.SetNorm(NormKind::kLayerPlusOne);
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  s.gguf = {.name = "nemotron",
            .activation = Activation::kReluSquared,
            .out_bias = true,
            .mlp_bias = true,
            .needs_head = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
