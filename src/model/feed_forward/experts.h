// The experts of a block: a router sends each token to some of many MLPs, whose weighted outputs are its sum.
#pragma once

#include <cstdint>
#include <string>

#include "model/feed_forward/mlp.h"

namespace temper {

// Gated MLPs of one size. Source: transformers, MixtralSparseMoeBlock and those made after it.
struct ExpertsSpec {
  int64_t experts = 0, active = 0;  // in all, and of a token
  int64_t ffn = 0;                  // of an expert
  Activation activation = Activation::kSilu;
  bool normalise = false;  // the weights of a token add up to 1, else they are probabilities among all experts

  // Modules, in the block; then the parameters that stack the experts' matrices, in `module`.
  std::string router = "mlp.gate", module = "mlp.experts", gate_up = "gate_up_proj", down = "down_proj";
  // The modules of one expert in files: <module>.<expert>.<name>.weight.
  std::string gate_in_files = "gate_proj", up_in_files = "up_proj", down_in_files = "down_proj";

  friend bool operator==(const ExpertsSpec&, const ExpertsSpec&) = default;
};

// From the block's sum, normed, to what joins it: [T, D] both.
ValueId BuildExperts(ForwardBuilder& f, const ExpertsSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
