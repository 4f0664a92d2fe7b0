// EXAONE 4 (LG AI Research 2025; transformers, Exaone4ForCausalLM): norms on the outputs of attention and MLP instead
// of their inputs, norms of each head's q and k; a window in three of four layers, and no rotary embedding in the
// others.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/families.h"

namespace temper {

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
  s.qk_norm = DecoderSpec::QkNorm::kHeads;
  s.attention_norm = s.mlp_norm = "";
  s.attention_out_norm = "post_attention_layernorm";
  s.mlp_out_norm = "post_feedforward_layernorm";
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
  for (DecoderBlock& block : s.blocks) block.rope = window == 0 || block.window > 0 ? 0 : kNoRope;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
