// residency: the pass that gives every value a tier and moves what kernels touch to where they run. It is to tiers what
// partition is to a mesh: model code knows nothing of it, and what it inserts are nodes like all others.
//
// A persistent value has a home, the same in all graphs compiled together. Where a kernel touches a value away from its
// home, it works on a copy: fetched before (kFetch), and, if it was changed, written back after (kEvict). A copy serves
// several touches where keeping it between them costs less than fetching it again (compile/residency/eviction.h); the
// others are dropped after their last touch. Activations may leave the device between the forward and the backward
// pass. Fetches are issued ahead by the time they take, as far as memory allows.
//
// Between the parts of a pipeline's stage other micro-batches run: copies serve one part, and what leaves the device
// from one to another lies in slots at the host (compile/layout/layout.h).
//
// What is moved are bytes: no placement changes a result.
#pragma once

#include <vector>

#include "compile/pipeline/pipeline.h"
#include "compile/residency/residency_spec.h"
#include "graph/graph.h"

namespace temper {

// Bytes of the device that activations, copies and scratch take at least: what is alive at each node when every copy is
// there for its touch alone, and the most of it.
struct LeastBytes {
  Bytes bytes;
  size_t node = 0;
  std::vector<Bytes> at;  // per node
};
// What lies in slots is not among it.
LeastBytes LeastOnDevice(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

// `parts`: empty for a graph that is one. REQUIRES: the graph verifies, all its values are on the device, and nothing
// of it has been made to update in place that the model does not (compile/step/fuse.h, UpdateInPlace, comes after).
PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

}  // namespace temper
