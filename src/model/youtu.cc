// Youtu-LLM 2B (Tencent 2025; transformers, YoutuForCausalLM): Llama's blocks with DeepSeek-V3's latent attention.
// MiniCPM 3 4B (OpenBMB 2024; MiniCPM3ForCausalLM): latent attention whose rotary part is not interleaved, and
// constants that multiply embeddings and what attention and MLP add, and divide the logits.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/latent.h"

namespace temper {
namespace {

bool IsGiven(const Json& config, const char* key) {
  return config.contains(key) && !config[key].is_null();
}

}  // namespace

Result<std::unique_ptr<Model>> ReadYoutu(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLatentDecoder(config, "YoutuForCausalLM",
                                                           {.vocab = 128256,
                                                            .hidden = 2048,
                                                            .ffn = 6144,
                                                            .blocks = 32,
                                                            .heads = 16,
                                                            .max_positions = 131072,
                                                            .kv_heads = 16,
                                                            .tied = true},
                                                           {.q_rank = 1536, .kv_rank = 512}, where));
  if (!IsGiven(config, "initializer_range")) {
    s.facts.initializer_range = 2.0 / std::sqrt(5.0 * static_cast<double>(s.hidden));
  }
  return MakeDecoder(std::move(s));
}

Result<std::unique_ptr<Model>> ReadMiniCpm3(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadLatentDecoder(config, "MiniCPM3ForCausalLM",
                                                           {.vocab = 73448,
                                                            .hidden = 2560,
                                                            .ffn = 6400,
                                                            .blocks = 62,
                                                            .heads = 40,
                                                            .max_positions = 32768,
                                                            .kv_heads = 40,
                                                            .norm_eps = 1e-5,
                                                            .initializer_range = 0.1,
                                                            .tied = true},
                                                           {.q_rank = 768,
                                                            .kv_rank = 256,
                                                            .head_dim = 64,
                                                            .rope_dim = 32,
                                                            .v_head_dim = 0,
                                                            .interleaved = false,
                                                            .may_be_interleaved = false,
                                                            .ignores_head_dim = true},
                                                           where));
  TEMPER_ASSIGN_OR_RETURN(const bool mlp_bias, BoolOr(config, "mlp_bias", false, where));
  for (MlpSpec* const m : s.mlps()) m->bias = mlp_bias;
  const double depth = std::sqrt(static_cast<double>(s.blocks.size())), hidden = static_cast<double>(s.hidden);
  // A null stands for the value that scales nothing.
  struct Factor {
    const char* key;
    double missing, null, value = 0;
  };
  Factor factors[] = {{"scale_emb", 12, 12}, {"scale_depth", 1.4, depth}, {"dim_model_base", 256, hidden}};
  for (Factor& f : factors) {
    TEMPER_ASSIGN_OR_RETURN(f.value, NumberOr(config, f.key, config.contains(f.key) ? f.null : f.missing, where));
    if (!(f.value > 0) || !std::isfinite(f.value)) {
      return Corrupt(fmt::format("{}: {} is {}, should be positive", where, f.key, f.value));
    }
  }
  s.embedding_scale = factors[0].value;
  s.scales_in_embedding = s.rounds_embedding_scale = true;
  for (DecoderBlock& block : s.blocks) block.residual_scale = factors[1].value / depth;
  s.logit_scale = factors[2].value / hidden;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
