// Mixtral (Jiang et al. 2024; transformers, MixtralForCausalLM): Mistral's blocks, whose MLPs are experts. Files keep
// the names of the first version.
#include "model/families.h"
#include "model/mixture.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadMixtral(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "MixtralForCausalLM",
                                                     {.vocab = 32000,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 4096 * 32,
                                                      .kv_heads = 8,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.theta = 1000000}},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 0, where));
  TEMPER_RETURN_IF_ERROR(SetWindows(
      config, window, [window](int64_t) { return window > 0; }, where, &s));
  TEMPER_ASSIGN_OR_RETURN(const double jitter, NumberOr(config, "router_jitter_noise", 0, where));
  if (jitter != 0) return Unsupported(where + ": router_jitter_noise (noise on what experts read) is not supported");
  TEMPER_ASSIGN_OR_RETURN(const ExpertsSpec experts, ReadExperts(config, "intermediate_size",
                                                                 {.experts = 8,
                                                                  .active = 2,
                                                                  .ffn = 14336,
                                                                  .normalise = true,
                                                                  .gate_in_files = "w1",
                                                                  .up_in_files = "w3",
                                                                  .down_in_files = "w2"},
                                                                 where, &s));
  for (DecoderBlock& block : s.blocks) block.feed_forward = experts;
  s.names.in_files = {{".mlp.", ".block_sparse_moe."}};
  s.gguf = {.name = "llama", .interleaved = true, .factors = true, .any_head_dim = true, .normalises_experts = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
