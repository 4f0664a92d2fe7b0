// LoRA (Hu et al. 2021) with PEFT's semantics, as a rewrite of a forward graph:
//   linear(x, W)  becomes  linear(x, W) + s * linear(linear(dropout(x), A), B),  W frozen,
// s = alpha / r, or alpha / sqrt(r) for rank-stabilised LoRA. On the head the branch becomes linear_cross_entropy's
// second pair of operands. Adapter values have PEFT's tensor names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace temper {

struct LoraSpec {
  int64_t r = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;
  // PEFT's target_modules, the first of these that is not empty: a regex (the whole module path must match), a list of
  // names (a module path equals one or ends with "." + one), or all linear modules but the head.
  bool all_linear = true;
  std::string target_regex;
  std::vector<std::string> target_modules;
  // What is left out of them: names as in a list of targets, or a regex.
  std::vector<std::string> exclude_modules;
  std::string exclude_regex;
  // Per-module overrides; a key matches a module path as the regex "(.*\.)?(key)$". First match wins.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
};

struct LoraTarget {
  std::string module;  // "model.layers.0.self_attn.q_proj", "lm_head"
  int64_t in = 0, out = 0, r = 0;
  double scale = 0;
};

// Names of a module's two adapter tensors: A [r, in], B [out, r].
std::string LoraAName(const std::string& module);
std::string LoraBName(const std::string& module);

// The linear modules of `forward` that `spec` selects, in graph order. Errors: a bad regex, a rank below 1 or absurd,
// nothing selected, or a listed name that no module has (with the names there are).
Result<std::vector<LoraTarget>> ResolveLoraTargets(const Graph& forward, const LoraSpec& spec);

// A line for each override or exclusion of `spec` that changes nothing, as PEFT allows: a mistyped name, most often.
// Errors: as ResolveLoraTargets.
Result<std::vector<std::string>> IdleLoraSettings(const Graph& forward, const LoraSpec& spec);

// REQUIRES: `targets` from ResolveLoraTargets on a graph of the same model. Dropout 0 adds no dropout node.
Graph AddLora(Graph forward, const std::vector<LoraTarget>& targets, double dropout);

}  // namespace temper
