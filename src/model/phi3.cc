// Phi-3, 3.5, Phi-4 and Phi-4-mini (Abdin et al. 2024; transformers, Phi3ForCausalLM):
// Llama's blocks with fused projections (q, k, v in one, gate and up in one). Some
// have a sliding window, longrope, or a rotary embedding of only part of each head.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadPhi3(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s,
                          ReadDecoder(config, "Phi3ForCausalLM",
                                      {.vocab = 32064,
                                       .hidden = 3072,
                                       .ffn = 8192,
                                       .blocks = 32,
                                       .heads = 32,
                                       .max_positions = 4096,
                                       .norm_eps = 1e-5,
                                       .rope = {.may_be_partial = true, .yarn_is_longrope = true, .original = 4096}},
                                      where));
  for (MlpSpec* const m : s.mlps()) m->fused_gate_up = true;
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 0, where));
  for (AttentionSpec* const a : s.attentions()) {
    a->fused_qkv = true;
    a->window = window;
  }
  TEMPER_ASSIGN_OR_RETURN(const double p, ReadDropout(config, "resid_pdrop", 0, where, &s.facts));
  for (DecoderBlock& block : s.blocks) block.mixer_out_dropout = block.feed_forward_out_dropout = p;
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, "embd_pdrop", 0, where, &s.facts));
  s.gguf = {.name = "phi3", .factors = true, .fused_qkv = true, .fused_gate_up = true};
  return MakeDecoder(std::move(s));
}

}  // namespace temper
