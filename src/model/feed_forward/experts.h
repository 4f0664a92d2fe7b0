// The experts of a block: a router sends each token to some of many MLPs, whose weighted outputs are its sum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/feed_forward/mlp.h"

namespace temper {

// Gated MLPs of one size. Source: transformers, MixtralSparseMoeBlock and those made after it.
struct ExpertsSpec {
  int64_t experts = 0, active = 0;  // in all, and of a token
  int64_t ffn = 0;                  // of an expert
  Activation activation = Activation::kSilu;
  bool normalise = false;  // the weights of a token add up to 1, else they are probabilities among all experts
  // Scores are the logistic function of logits, not their softmax. `choice_bias`: a tensor with a number per expert
  // that is added to the scores when experts are chosen ("": none); they are chosen from the `top_groups` best of
  // `groups` groups (0: from all). Weights are multiplied by `scale`. Source: transformers, DeepseekV3TopkRouter.
  bool sigmoid = false;
  std::string choice_bias = {};
  int64_t groups = 0, top_groups = 0;
  double scale = 1;
  // Not 0: gate and up are bounded by it, h = g sigmoid(alpha g) (u + 1), and are stored in turn, in x out; all
  // products have biases, the router's too (GptOssExperts).
  double clamp = 0, clamp_alpha = 0;
  // An MLP of all tokens beside them, times the logistic function of what the module `shared_gate` makes of the token
  // ("": as it is).
  std::optional<MlpSpec> shared;
  std::string shared_gate = "mlp.shared_expert_gate";

  // Modules, in the block; then the parameters that stack the experts' matrices, in `module`.
  std::string router = "mlp.gate", module = "mlp.experts", gate_up = "gate_up_proj", down = "down_proj";
  // Experts and router were linear modules in older classes, whose names PEFT takes for the parameters of today's.
  bool were_modules = true;
  // How files have the experts' matrices (gate and up are segments of one parameter), and of kEach the modules of one
  // expert.
  ForwardBuilder::StackFiles files = ForwardBuilder::StackFiles::kEach;
  std::string gate_in_files = "gate_proj", up_in_files = "up_proj", down_in_files = "down_proj";
  // Names of tensors in files, in the block, where they differ from the parameters' names.
  std::string router_tensor = {}, gate_up_tensor = {}, down_tensor = {};

  friend bool operator==(const ExpertsSpec&, const ExpertsSpec&) = default;
};

// From the block's sum, normed, to what joins it: [T, D] both.
ValueId BuildExperts(ForwardBuilder& f, const ExpertsSpec& spec, const BlockContext& block, ValueId x_TD);

}  // namespace temper
