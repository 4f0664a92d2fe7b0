// What `temper plan --sharding` draws: every tensor's shape and placement, which rank holds which slice of it, and what
// each rank holds in all. From shapes alone, for any mesh.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "tensor/placement.h"

namespace temper {

struct ShardingStyle {
  bool colours = false;  // ANSI, one per rank
  bool boxes = false;    // Unicode box drawing
};

// `forward`: the graph of one device (global shapes), with its adapters. `placements`: of all its weights
// (compile/placement_rules.h). `stages`: of a pipeline, those that have each of them (compile/pipeline.h). Tensors of
// equal shape and placement that differ only in the number of their layer are drawn once.
std::string DrawSharding(const Graph& forward, const Mesh& mesh, const std::map<std::string, Placement>& placements,
                         const std::map<std::string, std::vector<int>>& stages, const ShardingStyle& style);

}  // namespace temper
