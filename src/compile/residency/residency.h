// residency: the pass that gives every value a tier and moves the operands of kernels to where they run. It is to tiers
// what partition is to a mesh: model code knows nothing of it, and it inserts ordinary nodes.
//
// A persistent value has a home tier, the same in all graphs compiled together. A kernel that touches a value away from
// its home works on a copy, which is fetched before (kFetch) and, if changed, written back after (kEvict). A copy
// serves several touches if keeping it costs less than fetching it again (compile/residency/eviction.h); otherwise it
// is dropped. Activations may leave the device between forward and backward. Fetches are issued ahead by their
// duration, as far as memory allows.
//
// Between the parts of a pipeline's stage other micro-batches run: copies serve one part, and values that leave the
// device between parts are in slots at the host (compile/layout/layout.h).
//
// Moves copy bytes: no tier changes a result.
#pragma once

#include <vector>

#include "compile/pipeline/pipeline.h"
#include "compile/residency/node_costs.h"
#include "compile/residency/residency_spec.h"
#include "graph/graph.h"

namespace temper {

// The least bytes of the device that activations, copies and scratch need: the bytes alive at each node if every copy
// exists only for its touch, and their maximum.
struct LeastBytes {
  Bytes bytes;
  size_t node = 0;
  std::vector<Bytes> at;  // per node
};
// Does not include slots. `costs`: CostsOfNodes of the graph by the rates and threads of `spec`, here and below.
LeastBytes LeastOnDevice(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec,
                         const NodeCosts& costs);

// `parts`: empty for a graph that is one part. REQUIRES: the graph verifies, all its values are on the device, and it
// is before UpdateInPlace (compile/step/fuse.h).
PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec,
                      const NodeCosts& costs);
// For a graph that is placed once.
PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

}  // namespace temper
