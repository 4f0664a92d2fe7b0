// partition: from the forward graph of one device of unlimited memory to that of one rank of a mesh. Every op's
// sharding rule (graph/rule.h) says how its operands may lie; where they lie otherwise, a collective is put in between.
//
// Runs before fuse and differentiate: collectives have gradients (graph/ops/collectives.cc), so that no backward op
// needs a sharding rule. The result has this rank's shapes; names stay, and every source that is a part of a larger
// tensor says which (Value::shard).
#pragma once

#include <map>
#include <string>

#include "compile/mesh/decisions.h"
#include "graph/graph.h"
#include "tensor/context_part.h"
#include "tensor/sharding.h"

namespace temper {

// How the residual stream lies along the tensor axes.
enum class ResidualSplit : uint8_t {
  kTokens,  // sequence parallelism: norms and residuals on a part of the tokens; reduce_scatter and all_gather
  kWhole,   // on all ranks the same; all_reduce
  kHidden,  // the hidden dim is split: 2-D and 2.5-D
};

struct PartitionSpec {
  Mesh mesh;
  int rank = 0;
  ResidualSplit residual = ResidualSplit::kTokens;
  // Of every weight and adapter of the graph, by name (compile/mesh/sharding_rules.h).
  const std::map<std::string, Sharding>* weights = nullptr;
  // For errors: of weights that a rule of the user placed, by name, what that rule is called. May be nullptr.
  const std::map<std::string, std::string>* given_rules = nullptr;
  // Who wants `mlp` to be decided decides before (train_step): here kAuto is kActivations.
  DecisionOptions options = {};
  int micro_batches = 1;                       // of a step: what decisions are counted for
  std::vector<Decision>* decisions = nullptr;  // filled where there was a choice; may be nullptr
};

// The axes that deal rows of the batch to ranks, in mesh order.
AxisSet DataAxes(const Mesh& mesh);
// Those along which ranks have tokens of their own: rows, or chunks of rows (cp).
AxisSet TokenAxes(const Mesh& mesh);
// How tokens of rows of `row` are dealt to that rank.
ContextPart ContextPartOf(const Mesh& mesh, int rank, int64_t row);

// REQUIRES: `forward` verifies; spec.weights has every weight and adapter.
// Errors: what does not divide, with the numbers; a sharding that an op cannot work with.
Result<Graph> Partition(const Graph& forward, const PartitionSpec& spec);

}  // namespace temper
