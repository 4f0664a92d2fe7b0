// Sharding rules: how every weight and adapter lies on the mesh, from an ordered list of (regular expression, spec);
// the first that is found in a tensor's name decides. The user's rules stand before the default ones.
//
//   spec = "replicate" | dim {"," dim}     as many dims as the tensor has; weights are [out, in]
//   dim  = "-" | axis {"+" axis}           not split, or split over these axes, outermost first
//   axis = "fsdp" | "tp" | "kv" | "dp" | "cp" | "depth" | "row"
//
// "tp+fsdp,-" cuts rows among tensor ranks and each part among fsdp ranks. Axes of one rank vanish, none may be named
// twice. Parts differ by one row or column where they do not divide.
//   tp    all ranks of a tensor-parallel group (of the column axis in 2-D modes)
//   kv    the same, but where KV heads are fewer than ranks, some ranks hold the same part
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compile/mesh/partition.h"

namespace temper {

struct ShardingRule {
  std::string pattern, spec;
  bool given = false;  // by the user
};

// For the names of Llama, OPT and their adapters.
std::vector<ShardingRule> DefaultShardingRules(ResidualSplit residual);
// The user's, then the default ones.
std::vector<ShardingRule> WithDefaults(std::span<const ShardingRule> given, ResidualSplit residual);

// "placement rule 2 ['lm_head', 'fsdp,tp']", counted from 1 over the whole list.
std::string NameOfRule(std::span<const ShardingRule> rules, size_t index);

struct ShardedWeights {
  std::map<std::string, Sharding> shardings;  // by the tensor's name
  std::map<std::string, size_t> rule_of;      // what decided; absent for a tensor of one element that none matches
};

// A line for each rule of the user that decides nothing, because no name that the rules before it leave matches.
std::vector<std::string> IdleRules(std::span<const ShardingRule> rules, const ShardedWeights& placed);

// REQUIRES: `forward` verifies. Errors, which name the rule: a tensor of more than one element that no rule matches; an
// axis that there is not, with the nearest, also of a rule that matches nothing; a spec with more or fewer dims than
// the tensor; an axis twice.
Result<ShardedWeights> ShardWeights(const Graph& forward, const Mesh& mesh, std::span<const ShardingRule> rules);

// This rank's part of `forward` with its weights placed by `rules`. As Partition; where that refuses a block for which
// the user gave rules, the error names them.
Result<Graph> PartitionByRules(const Graph& forward, const PartitionSpec& spec, std::span<const ShardingRule> rules);
// The same where ShardWeights has placed them, for all graphs of a step at once.
Result<Graph> PartitionAsSharded(const Graph& forward, const PartitionSpec& spec, const ShardedWeights& placed,
                                 std::span<const ShardingRule> rules);

}  // namespace temper
