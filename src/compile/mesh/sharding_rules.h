// Sharding rules: how every weight and adapter lies on the mesh. The user's rules come first, an ordered list of
// (regular expression, spec): the first that is found in a tensor's name decides. What they leave is decided by the
// labels of its dims (tensor/dim_label.h).
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
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/mesh/partition.h"

namespace temper {

struct ShardingRule {
  std::string pattern, spec;
};

// "placement rule 2 ['lm_head', 'fsdp,tp']", counted from 1.
std::string NameOfRule(std::span<const ShardingRule> rules, size_t index);

// The spec that a tensor's labels give it; nullopt where it has none. In 1-D tensor parallelism heads, ffn, vocab and
// positions are cut among tensor ranks, kv_heads among those that have heads of their own. In 2-D modes
// (ResidualSplit::kHidden) products cut what goes out among columns and what comes in among rows, whatever it is. Both
// leave LoRA's rank and what norms scale whole, and cut dim 0 over fsdp and cp, too.
std::optional<std::string> SpecOfLabels(const DimLabels& labels, ResidualSplit residual);

struct ShardedWeights {
  std::map<std::string, Sharding> shardings;  // by the tensor's name
  std::map<std::string, size_t> rule_of;      // of the user's, what decided; absent where labels did
};

// A line for each rule that decides nothing, because no name that the rules before it leave matches.
std::vector<std::string> IdleRules(std::span<const ShardingRule> rules, const ShardedWeights& sharded);

// REQUIRES: `forward` verifies. Errors, which name the rule: a tensor of more than one element that no rule matches and
// that has no labels; an axis that there is not, with the nearest, also of a rule that matches nothing; a spec with
// more or fewer dims than the tensor; an axis twice.
Result<ShardedWeights> ShardWeights(const Graph& forward, const Mesh& mesh, std::span<const ShardingRule> rules,
                                    ResidualSplit residual);

// This rank's part of `forward` with its weights sharded by `rules` and labels. As Partition; where that refuses a
// block for which the user gave rules, the error names them.
Result<Graph> PartitionByRules(const Graph& forward, const PartitionSpec& spec, std::span<const ShardingRule> rules);
// The same where ShardWeights has sharded them, for all graphs of a step at once.
Result<Graph> PartitionAsSharded(const Graph& forward, const PartitionSpec& spec, const ShardedWeights& sharded,
                                 std::span<const ShardingRule> rules);

}  // namespace temper
