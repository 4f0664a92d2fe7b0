// LoraModule: one linear module with its adapter, y = W x + scale * B (A x), and what PEFT calls the adapter's tensors.
#pragma once

#include <cstdint>
#include <string>

namespace temper {

struct LoraModule {
  std::string path;  // as transformers names it today: "model.layers.0.self_attn.q_proj", "lm_head"
  int64_t in = 0, out = 0, r = 0;
  double scale = 0;
};

// Names of a module's two tensors, in a graph and in a file: A [r, in], B [out, r].
std::string LoraAName(const std::string& path);
std::string LoraBName(const std::string& path);

}  // namespace temper
