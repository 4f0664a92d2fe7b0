// Placement rules: how every weight and adapter lies on the mesh, from an ordered list of (regular expression, spec);
// the first that is found in a tensor's name decides. The user's rules stand before the default ones.
//
// A spec names, for each dim of the tensor, the axes that split it, outermost first: "tp+fsdp,-" cuts rows among tensor
// ranks and each part among fsdp ranks; "-" is a dim that is not split. Weights are [out, in]. Axes of one rank vanish.
//   tp    all ranks of a tensor-parallel group (of the column axis in 2-D modes)
//   kv    the same, but where KV heads are fewer than ranks, some ranks hold the same part
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compile/partition.h"

namespace temper {

struct PlacementRule {
  std::string pattern, spec;
};

// For the names of Llama, OPT and their adapters.
std::vector<PlacementRule> DefaultPlacementRules(ResidualSplit residual);

// REQUIRES: `forward` verifies. Errors: a tensor of more than one element that no rule matches; an axis that a spec
// names and nothing is called by; a spec with more dims than the tensor; an axis twice.
Result<std::map<std::string, Placement>> PlaceWeights(const Graph& forward, const Mesh& mesh,
                                                      std::span<const PlacementRule> rules);

}  // namespace temper
