// The drawing of `temper plan --sharding`: every tensor's shape and sharding, which rank holds which slice of it, and
// the bytes of each rank. From shapes alone, for any mesh.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/mesh/sharding_rules.h"
#include "graph/graph.h"

namespace temper {

struct ShardingStyle {
  bool colours = false;  // ANSI, one per rank
  bool boxes = false;    // Unicode box drawing
};

// The mesh and the rules by which tensors are sharded.
struct ShardedBy {
  const Mesh& mesh;
  const std::vector<ShardingRule>& rules;
  ResidualSplit residual;
};

// `forward`: the graph of one device (global shapes), with its adapters. `sharded`: all its weights, sharded according
// to `by`. `stages`: for a pipeline, the stages that have each tensor (compile/pipeline/pipeline.h). Tensors of equal
// shape, labels, rule and stages that differ only in their layer number are drawn once.
std::string DrawSharding(const Graph& forward, const ShardedBy& by, const ShardedWeights& sharded,
                         const std::map<std::string, std::vector<int>>& stages, const ShardingStyle& style);

}  // namespace temper
