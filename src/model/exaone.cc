// EXAONE 3, 3.5 and Deep (LG AI Research 2024; transformers, LlamaForCausalLM of model_type exaone): Llama, with other
// names in files. EXAONE 4 (LG AI Research 2025; transformers, Exaone4ForCausalLM): norms on the outputs of attention
// and MLP instead of their inputs, norms of each head's q and k; a window in three of four layers, and no rotary
// embedding in the others.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadExaone(const Json& file, const std::string& where) {
  Json config = file;
  // The class takes the names of the first version, too.
  for (const auto& [first, usual] : {std::pair{"num_layers", "num_hidden_layers"},
                                     {"layer_norm_epsilon", "rms_norm_eps"},
                                     {"activation_function", "hidden_act"}}) {
    if (config.contains(first) && !config.contains(usual)) config[usual] = config[first];
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "ExaoneForCausalLM",
                                                     {.vocab = 102400,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 4096,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.theta = 500000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) a->qkv_bias = a->out_bias = bias;
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  s.names.in_files = {{"model.embed_tokens", "transformer.wte"}, {"model.layers.", "transformer.h."},
                      {"model.norm.", "transformer.ln_f."},      {".self_attn.o_proj", ".self_attn.out_proj"},
                      {".self_attn.", ".attn.attention."},       {".input_layernorm", ".ln_1"},
                      {".post_attention_layernorm", ".ln_2"},    {".mlp.gate_proj", ".mlp.c_fc_0"},
                      {".mlp.up_proj", ".mlp.c_fc_1"},           {".mlp.down_proj", ".mlp.c_proj"}};
  s.gguf = {.name = "exaone", .factors = true};
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadExaone4(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Exaone4ForCausalLM",
                                                     {.vocab = 102400,
                                                      .hidden = 4096,
                                                      .ffn = 16384,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 2048,
                                                      .kv_heads = 32,
                                                      .norm_eps = 1e-5},
                                                     where));
  s.NameNorms({.mixer = "",
               .feed_forward = "",
               .mixer_out = "post_attention_layernorm",
               .feed_forward_out = "post_feedforward_layernorm"});
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  // Files whose pattern is a text ("LLLG") list the types of their layers, too; the class reads only these then.
  int64_t pattern = 4;
  if (const auto types = config.find("layer_types"); types == config.end() || types->is_null()) {
    TEMPER_ASSIGN_OR_RETURN(pattern, IntOr(config, "sliding_window_pattern", 4, where));
    if (window > 0 && pattern < 1) {
      return Corrupt(fmt::format("{}: sliding_window_pattern is {}, should be at least 1", where, pattern));
    }
  }
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return window > 0 && (block + 1) % pattern != 0; }, where, &s));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->rope = window == 0 || a->window > 0 ? 0 : kNoRope;
  }
  // llama.cpp knows the model with windows by its number of blocks.
  const bool windows = std::ssize(s.blocks) == 64;
  s.gguf = {.name = "exaone4",
            .windows = windows,
            .factors = true,
            .rope = GgufArchitecture::Rope::kWindowed,
            .missing = window == 0 || windows ? "" : "windows of models that have not 64 layers"};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
