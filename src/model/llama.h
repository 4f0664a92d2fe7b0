// Llama 1, 2, 3.x (Touvron et al. 2023; transformers, LlamaForCausalLM): pre-norm blocks of RMSNorm, rotary
// grouped-query attention and SwiGLU.
#pragma once

#include <memory>

#include "model/model.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadLlama(const Json& config, const std::string& where);

}  // namespace temper
