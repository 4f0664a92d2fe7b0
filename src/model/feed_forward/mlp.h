// The MLP of a block: down(activation(gate) * up) if gated, else down(activation(up)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/block_context.h"

namespace temper {

// kSilu is only gated, kRelu, its square and kXielu never.
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kReluSquared, kXielu };

// The activation that transformers calls `name`, if MLPs with or without a gate may have it.
std::optional<Activation> ActivationNamed(const std::string& name, bool gated);

// An activation without a gate; `module` is its own, of those that have numbers (xIELU).
ValueId Activated(ForwardBuilder& f, ValueId x, Activation activation, const std::string& module,
                  const std::string& name);

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
  std::string act = "mlp.act_fn";  // of xIELU, which has numbers of its own

  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

// From the block's sum, normed, to what joins it: [T, D] both.
ValueId BuildMlp(ForwardBuilder& f, const MlpSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
