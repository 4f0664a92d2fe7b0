// OPT, 125m to 66b (Zhang et al. 2022; transformers, OPTForCausalLM): LayerNorm, learned positions offset by 2, ReLU
// (or GELU) blocks with biases. 350m differs: norms after the residual, and embeddings narrower than the blocks.
#pragma once

#include <memory>

#include "model/model.h"

namespace temper {

Result<std::unique_ptr<Model>> ReadOpt(const Json& config, const std::string& where);

}  // namespace temper
