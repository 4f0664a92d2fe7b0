// Sharding rules: the sharding of every weight and adapter on the mesh. The user's rules come first, an ordered list of
// (regular expression, spec): the first whose expression matches a part of the tensor's name decides. For all other
// tensors, the labels of their dims decide (tensor/dim_label.h).
//
//   spec = "replicate" | dim {"," dim}     one for each dim of the tensor; weights are [out, in]
//   dim  = "-" | axis {"+" axis}           not split, or split over these axes, outermost first
//   axis = "fsdp" | "tp" | "kv" | "dp" | "cp" | "ep" | "depth" | "row"
//
// "tp+fsdp,-" splits rows among tensor ranks and each part among fsdp ranks. Axes of one rank are ignored; no axis may
// appear twice. If a size does not divide, parts differ by one row or column.
//   tp    all ranks of a tensor-parallel group (of the column axis in 2-D modes)
//   kv    the same, but if there are fewer KV heads than ranks, several ranks hold the same part
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

// "sharding rule 2 ['lm_head', 'fsdp,tp']", counted from 1.
std::string NameOfRule(std::span<const ShardingRule> rules, size_t index);

// The spec that follows from a tensor's labels; nullopt if it has none. In 1-D tensor parallelism heads, ffn, vocab and
// positions are split among tensor ranks, and kv_heads among the ranks with different KV heads. In 2-D modes
// (ResidualSplit::kHidden) the out dim of every product is split among columns and its in dim among rows. In both,
// LoRA's rank and the weights of norms stay whole, and dim 0 is also split over fsdp, cp and ep. `whole_rows`: the
// weight is quantised, so its columns cannot be gathered. 2-D modes then split its out dim over the row axis, too; a
// rank holds as much as before.
std::optional<std::string> SpecOfLabels(const DimLabels& labels, ResidualSplit residual, bool whole_rows = false);

struct ShardedWeights {
  std::map<std::string, Sharding> shardings;  // by the tensor's name
  std::map<std::string, size_t> rule_of;      // the deciding user's rule; absent if labels decided
};

// A line for each rule without effect: no tensor matches it that no earlier rule matches.
std::vector<std::string> IdleRules(std::span<const ShardingRule> rules, const ShardedWeights& sharded);

// REQUIRES: `forward` verifies. Errors, which name the rule: a tensor of more than one element without labels that no
// rule matches; an unknown axis, with the closest name, even in a rule that matches nothing; a spec with more or fewer
// dims than the tensor; an axis used twice.
Result<ShardedWeights> ShardWeights(const Graph& forward, const Mesh& mesh, std::span<const ShardingRule> rules,
                                    ResidualSplit residual);

// This rank's part of `forward` with its weights sharded by `rules` and labels. As Partition; if it refuses a block for
// which the user gave rules, the error names them.
Result<Graph> PartitionByRules(const Graph& forward, const PartitionSpec& spec, std::span<const ShardingRule> rules);
// The same with the result of ShardWeights, which all graphs of a step can share.
Result<Graph> PartitionAsSharded(const Graph& forward, const PartitionSpec& spec, const ShardedWeights& sharded,
                                 std::span<const ShardingRule> rules);

}  // namespace temper
