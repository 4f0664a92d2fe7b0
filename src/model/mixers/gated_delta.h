// A gated delta net, the linear attention of Qwen3-Next and Qwen3.5 (Yang et al. 2024; transformers,
// Qwen3_5GatedDeltaNet): q, k and v of short convolutions, the gated delta rule, a norm of each head, a gate.
#pragma once

#include <cstdint>
#include <string>

#include "model/block_context.h"
#include "model/norm.h"

namespace temper {

struct GatedDeltaSpec {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // dims: of a head
  int64_t taps = 0;                                                    // of the convolutions
  double norm_eps = 0;

  // Modules: `path` in the block, the others in `path`.
  std::string path = "linear_attn.";
  std::string qkv = "in_proj_qkv", z = "in_proj_z", b = "in_proj_b", a = "in_proj_a", out = "out_proj";
  // Not empty: q, k, v and z are one module, and b and a another, with the rows of each key head, and of the value
  // heads that belong to it, beside each other (Qwen3NextGatedDeltaNet).
  std::string qkvz = {}, ba = {};
  std::string conv = "conv1d", norm = "norm";
  std::string a_log = "A_log", dt_bias = "dt_bias";  // tensors

  friend bool operator==(const GatedDeltaSpec&, const GatedDeltaSpec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildGatedDelta(ForwardBuilder& f, const GatedDeltaSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
