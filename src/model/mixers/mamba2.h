// A layer of Mamba-2 (Dao & Gu 2024; transformers, GraniteMoeHybridMambaLayer): x, b and c of short convolutions, a
// recurrence that decays by the step dt, a gate, a norm.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/block_context.h"
#include "model/norm.h"

namespace temper {

struct Mamba2Spec {
  int64_t heads = 0, groups = 0;         // each group's b and c serve several heads, one after another
  int64_t value_dim = 0, state_dim = 0;  // of a head's x; of b and c
  int64_t taps = 0;                      // of the convolutions
  bool conv_bias = false, in_bias = false, out_bias = false;  // of the convolutions, of both products
  double least_step = 0;                                      // of dt
  // Of what the recurrence gives: scaled by the gate, then normed over the heads of each group, or the other way round,
  // or not normed at all.
  enum class Norm : uint8_t { kAfterGate, kBeforeGate, kNone } norms = Norm::kAfterGate;
  double norm_eps = 0;
  // Factors of what the first product reads, and of z, x, b, c and dt, which it gives (Falcon-H1).
  double in_scale = 1;
  std::array<double, 5> scales = {1, 1, 1, 1, 1};

  // Modules: `path` in the block, the others in `path`.
  std::string path = "mamba.";
  std::string in = "in_proj", out = "out_proj", conv = "conv1d", norm = "norm";
  std::string a_log = "A_log", dt_bias = "dt_bias", d = "D";  // tensors

  friend bool operator==(const Mamba2Spec&, const Mamba2Spec&) = default;
};

// From the block's input, normed, to what joins the residual sum: [T, D] both.
ValueId BuildMamba2(ForwardBuilder& f, const Mamba2Spec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
