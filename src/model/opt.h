// OPT, 125m to 66b (Zhang et al. 2022; transformers, OPTForCausalLM): LayerNorm, learned positions offset by 2, ReLU
// (or GELU) blocks with biases. 350m differs: norms after the residual, and embeddings narrower than the blocks.
#pragma once

#include <memory>

#include "model/model.h"

namespace temper {

struct OptConfig {
  ModelFacts facts;
  int64_t ffn = 0;
  int64_t embed = 0;  // word_embed_proj_dim; differs from hidden where project_in/out exist
  bool pre_norm = true, bias = true, affine = true, final_norm = true, tied = true;
  bool gelu = false;
  double dropout = 0;  // in training, of what attention and MLP add to the residual stream
};

Result<OptConfig> ReadOptConfig(const Json& config, const std::string& where);
std::unique_ptr<Model> MakeOpt(OptConfig config);

}  // namespace temper
