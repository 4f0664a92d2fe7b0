// Apertus, 8B and 70B (Swiss AI 2025; transformers, ApertusForCausalLM): Llama's blocks with norms of each head's q and
// k, and an MLP without gate whose activation, xIELU, learns two numbers of its own in each block. Apertus 1.5 (2026;
// Apertus1p5TextForCausalLM): the head may have fewer words than the embedding, whose last rows are those of images and
// sound.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {
namespace {

Result<DecoderSpec> ReadApertuses(Json config, const char* architecture, int64_t vocab, const std::string& where) {
  const auto has = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  if (!has("rope_parameters") && !has("rope_scaling")) {
    config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 12000000.0},
                                 {"factor", 8.0},           {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "hidden_act", "xielu", where));
  const bool xielu = activation == "xielu";
  if (xielu) config.erase("hidden_act");
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, architecture,
                                                     {.vocab = vocab,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 65536,
                                                      .norm_eps = 1e-5,
                                                      .activation = "relu2",
                                                      .gated = false,
                                                      .rope = {.theta = 12000000}},
                                                     where));
  s.NameNorms({.mixer = "attention_layernorm", .feed_forward = "feedforward_layernorm"});
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", false, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qk_norm = AttentionSpec::QkNorm::kHeads;
    a->qkv_bias = a->out_bias = bias;
  }
  for (MlpSpec* const m : s.mlps()) {
    if (xielu) m->activation = Activation::kXielu;
  }
  s.gguf = {.name = "apertus",
            .activation = Activation::kXielu,
            .out_bias = true,
            .factors = true,
            .needs_head = true,
            .any_head_dim = true};
  if (xielu) {
    for (const auto& [key, number] : {std::pair{"xielu.alpha_p", "alpha_p"},
                                      {"xielu.alpha_n", "alpha_n"},
                                      {"xielu.beta", "beta"},
                                      {"xielu.eps", "eps"}}) {
      s.gguf.numbers.emplace_back(key, s.mlps()[0]->act + "." + number);
    }
  }
  return s;
}

}  // namespace

Result<std::unique_ptr<Model>> ReadApertus(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadApertuses(config, "ApertusForCausalLM", 131072, where));
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadApertus15(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadApertuses(config, "Apertus1p5TextForCausalLM", 266752, where));
  s.names.other_prefix = "model.language_model.";  // as files of the multimodal class have the text model
  TEMPER_ASSIGN_OR_RETURN(const int64_t words, IntOr(config, "output_vocab_size", s.facts.vocab, where));
  if (words < 1 || words > s.facts.vocab) {
    return Corrupt(
        fmt::format("{}: output_vocab_size is {}, should be from 1 to vocab_size {}", where, words, s.facts.vocab));
  }
  if (words == s.facts.vocab) return MakeDecoder(std::move(s));
  if (s.facts.tied) {
    return Unsupported(fmt::format("{}: tie_word_embeddings with output_vocab_size {}, less than vocab_size {}", where,
                                   words, s.facts.vocab));
  }
  s.embedding_rows = s.facts.vocab;
  s.facts.vocab = words;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
