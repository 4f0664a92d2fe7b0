// Mistral 7B and Nemo (Jiang et al. 2023; transformers, MistralForCausalLM): Llama's blocks, in the first version with
// a window in all of them.
#include "model/decoder.h"
#include "model/families.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadMistral(const Json& config, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(DecoderSpec s, ReadDecoder(config, "MistralForCausalLM",
                                                     {.vocab = 32000,
                                                      .hidden = 4096,
                                                      .ffn = 14336,
                                                      .blocks = 32,
                                                      .heads = 32,
                                                      .max_positions = 131072,
                                                      .kv_heads = 8},
                                                     where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, ReadWindow(config, 4096, where));
  for (DecoderBlock& block : s.blocks) block.window = window;
  return MakeDecoder(std::move(s));
}

}  // namespace temper
