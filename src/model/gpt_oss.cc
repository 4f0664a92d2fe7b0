// gpt-oss (OpenAI 2025; transformers, GptOssForCausalLM): attention with a sink per head and a window in every other
// layer, experts with clamped gates and biases in all. Its router's softmax over the chosen logits is that over all,
// normalised.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/mixture.h"
#include "model/quantisation_config.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadGptOss(const Json& given, const std::string& where) {
  Json config = given;
  const auto has = [&](const char* key) { return config.contains(key) && !config[key].is_null(); };
  if (!has("rope_parameters") && !has("rope_scaling")) {
    config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 32.0},
                                 {"beta_fast", 32.0},   {"beta_slow", 1.0},
                                 {"truncate", false},   {"original_max_position_embeddings", 4096}};
  }
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "GptOssForCausalLM",
                                                     {.vocab = 201088,
                                                      .hidden = 2880,
                                                      .ffn = 2880,
                                                      .blocks = 36,
                                                      .heads = 64,
                                                      .max_positions = 131072,
                                                      .kv_heads = 8,
                                                      .head_dim = 64,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.theta = 150000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const bool bias, BoolOr(config, "attention_bias", true, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->qkv_bias = a->out_bias = bias;
    a->sink = "sinks";
  }
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 128, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [window](int64_t block) { return window > 0 && block % 2 == 0; }, where, &s));
  TEMPER_ASSIGN_OR_RETURN(
      ExpertsSpec experts,
      ReadExperts(
          config, "intermediate_size",
          {.experts = 128, .active = 4, .ffn = 2880, .normalise = true, .router = "mlp.router", .were_modules = false},
          where, &s));
  TEMPER_ASSIGN_OR_RETURN(experts.clamp, NumberOr(config, "swiglu_limit", 7, where));
  TEMPER_ASSIGN_OR_RETURN(experts.clamp_alpha, NumberOr(config, "swiglu_alpha", 1.702, where));
  if (!(experts.clamp > 0)) {
    return Corrupt(fmt::format("{}: swiglu_limit is {}, should be positive", where, experts.clamp));
  }
  ReadStoredFormat(config, /*has_stored_experts=*/true, &s.facts);
  if (s.facts.experts_format == ElementFormat::Mxfp4()) {
    s.facts.training_notes.push_back(
        fmt::format("{}: the files hold experts in MXFP4, as which memory has them where dtype is bf16; f32 takes 7.5 "
                    "times as much",
                    where));
  }
  for (DecoderBlock& block : s.blocks) block.feed_forward = experts;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
