// The MLP of a block: down(activation(gate) * up) if gated, else down(activation(up)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/block_context.h"

namespace temper {

// kSilu is only gated, kRelu and its square never.
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared };

// The activation that transformers calls `name`, if MLPs with or without a gate may have it.
std::optional<Activation> ActivationNamed(const std::string& name, bool gated);

// The gate of a gated MLP. REQUIRES: there is one of this activation.
GraphBuilder::Gate GateOf(Activation activation);

struct MlpSpec {
  int64_t ffn = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
  bool fused_gate_up = false;            // gate and up are stored in one tensor
  double dropout = 0;                    // in training, on what the last product reads
  double gate_scale = 1, out_scale = 1;  // factors of what the products of the gate and the last one give

  // Modules, in the block.
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", gate_up = "mlp.gate_up_proj", down = "mlp.down_proj";

  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

// From the block's sum, normed, to what joins it: [T, D] both.
ValueId BuildMlp(ForwardBuilder& f, const MlpSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
