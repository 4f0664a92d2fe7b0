// Phi-3, 3.5 and Phi-4 (Abdin et al. 2024; transformers, Phi3ForCausalLM): Llama's blocks with fused projections (q, k,
// v in one, gate and up in one) and, in some, a sliding window.
#pragma once

#include <memory>

#include "model/model.h"

namespace temper {

// kUnsupported: longrope, and rotary embeddings of a part of each head.
Result<std::unique_ptr<Model>> ReadPhi3(const Json& config, const std::string& where);

}  // namespace temper
