// Llama 1, 2, 3.x (Touvron et al. 2023; transformers, LlamaForCausalLM): pre-norm blocks of RMSNorm, rotary
// grouped-query attention and SwiGLU.
#pragma once

#include <memory>

#include "model/model.h"

namespace temper {

struct LlamaConfig {
  ModelFacts facts;
  int64_t ffn = 0;
  double rms_norm_eps = 1e-6;
  std::vector<double> inv_freq;
  bool attention_bias = false, mlp_bias = false;
  bool tied = false;  // the head is the embedding
};

Result<LlamaConfig> ReadLlamaConfig(const Json& config, const std::string& where);
std::unique_ptr<Model> MakeLlama(LlamaConfig config);

}  // namespace temper
