// partition: turns the forward graph of one device of unlimited memory into that of
// one rank of a mesh. Every op's sharding rule (graph/rule.h) states the shardings
// that its operands may have; if an operand has another one, a collective is inserted.
//
// Runs before fuse and differentiate: collectives have gradients (graph/ops/collectives.cc), so that no backward op
// needs a sharding rule. The result has this rank's shapes; names stay, and every source that is part of a larger
// tensor records which part (Value::shard).
#pragma once

#include <map>
#include <string>

#include "compile/mesh/decisions.h"
#include "graph/graph.h"
#include "tensor/context_part.h"
#include "tensor/sharding.h"

namespace temper {

// Sharding of the residual stream along the tensor axes.
enum class ResidualSplit : uint8_t {
  kTokens,  // sequence parallelism: norms and residuals on some of the tokens; reduce_scatter and all_gather
  kWhole,   // the same on all ranks; all_reduce
  kHidden,  // the hidden dim is split: 2-D and 2.5-D
};

struct PartitionSpec {
  Mesh mesh;
  int rank = 0;
  ResidualSplit residual = ResidualSplit::kTokens;
  // Shardings of every weight and adapter of the graph, by name (compile/mesh/sharding_rules.h).
  const std::map<std::string, Sharding>* weights = nullptr;
  // For errors: the user's rule that shards a weight, by the weight's name. May be nullptr.
  const std::map<std::string, std::string>* given_rules = nullptr;
  // `mlp` is decided before (train_step): here kAuto means kActivations.
  DecisionOptions options = {};
  int micro_batches = 1;                       // per step, for the costs in decisions
  std::vector<Decision>* decisions = nullptr;  // appended to if there was a choice; may be nullptr
};

// The axes that split the rows of the batch among ranks, in mesh order.
AxisSet DataAxes(const Mesh& mesh);
// The axes along which ranks have different tokens: rows, or chunks of rows (cp).
AxisSet TokenAxes(const Mesh& mesh);
// The tokens of a row of `row` tokens that belong to `rank`.
ContextPart ContextPartOf(const Mesh& mesh, int rank, int64_t row);

// REQUIRES: `forward` verifies; spec.weights has every weight and adapter.
// Errors: a size that does not divide, with the numbers; a sharding that an op does not support.
Result<Graph> Partition(const Graph& forward, const PartitionSpec& spec);

}  // namespace temper
