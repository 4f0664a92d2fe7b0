// Cohere 2, Command R7B and A (Cohere 2024; transformers, Cohere2ForCausalLM): attention and MLP run in parallel behind
// one layer norm without shift, logits are scaled, and three of four layers have a window. Only these have a rotary
// embedding, of interleaved pairs.
#include <fmt/core.h>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadCohere2(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "Cohere2ForCausalLM",
                                                     {.keys = {.norm_eps = "layer_norm_eps"},
                                                      .vocab = 256000,
                                                      .hidden = 8192,
                                                      .ffn = 22528,
                                                      .blocks = 40,
                                                      .heads = 64,
                                                      .max_positions = 8192,
                                                      .norm_eps = 1e-5,
                                                      .tied = true},
                                                     where));
  s.norm = DecoderSpec::Norm::kLayerNoShift;
  s.parallel = true;
  s.mlp_norm = "";
  s.ropes[0].interleaved = true;
  TEMPER_ASSIGN_OR_RETURN(s.logit_scale, NumberOr(config, "logit_scale", 0.0625, where));
  if (!(s.logit_scale > 0)) {
    return Corrupt(fmt::format("{}: logit_scale is {}, should be positive", where, s.logit_scale));
  }
  TEMPER_ASSIGN_OR_RETURN(s.qkv_bias, BoolOr(config, "attention_bias", false, where));
  s.attention_out_bias = s.qkv_bias;
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t pattern, IntOr(config, "sliding_window_pattern", 4, where));
  if (pattern < 1) {
    return Corrupt(fmt::format("{}: sliding_window_pattern is {}, should be at least 1", where, pattern));
  }
  if (window == 0) return Unsupported(where + ": sliding_window is null or 0, which Cohere2ForCausalLM cannot compute");
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [&](int64_t block) { return (block + 1) % pattern != 0; }, where, &s));
  for (DecoderBlock& block : s.blocks) block.rope = block.window > 0 ? 0 : kNoRope;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
