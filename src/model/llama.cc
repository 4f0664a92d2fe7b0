// Llama 1, 2, 3.x (Touvron et al. 2023; transformers, LlamaForCausalLM): pre-norm blocks of RMSNorm, rotary
// grouped-query attention and SwiGLU.
// AFM 4.5B (Arcee 2025; transformers, ArceeForCausalLM): Llama's blocks with an MLP without gate, whose activation is
// the square of ReLU. Jais 2 (Inception 2025; Jais2ForCausalLM): the same with layer norms and biases.
// Emu 3 (BAAI 2024; Emu3ForCausalLM): Llama with dropout behind attention and MLP.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

FamilyReader ReadExaone;

Result<std::unique_ptr<Model>> ReadLlama(const Json& config, const std::string& where) {
  // As transformers writes EXAONE 3, whose class it is, too.
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(config, "model_type", "llama", where));
  if (type == "exaone") return ReadExaone(config, where);
  TEMPER_ASSIGN_OR_RETURN(
      DecoderSpec s,
      ReadDecoder(config, "LlamaForCausalLM",
                  {.vocab = 32000, .hidden = 4096, .ffn = 11008, .blocks = 32, .heads = 32, .max_positions = 2048},
                  where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  s.gguf = {
      .name = "llama", .interleaved = true, .out_bias = true, .mlp_bias = true, .factors = true, .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadEmu3(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Emu3ForCausalLM",
                                                     {.vocab = 184622,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 9216,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5,
                                                      .attention_dropout = 0.1,
                                                      .rope = {.theta = 1000000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  // Of attention's weights it is not applied, as elsewhere; of both parts' outputs it is.
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "attention_dropout", 0.1, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadArcee(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "ArceeForCausalLM",
                                                     {.vocab = 32000,
                                                      .hidden = 2560,
                                                      .ffn = 18432,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 4096,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2",
                                                      .gated = false},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  s.gguf = {.name = "arcee",
            .interleaved = true,
            .activation = Activation::kReluSquared,
            .factors = true,
            .any_head_dim = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadJais2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Jais2ForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 150272,
                                                      .hidden = 3328,
                                                      .ffn = 26624,
                                                      .blocks = 32,
                                                      .heads = 26,
                                                      .max_positions = 8192,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2",
                                                      .gated = false},
                                                     where));
  s.SetNorm(NormKind::kLayer);
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", true, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  s.gguf = {.name = "jais2",
            .activation = Activation::kReluSquared,
            .out_bias = true,
            .mlp_bias = true,
            .any_head_dim = true,
            .missing = bias && mlp_bias ? "" : "products without biases"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
