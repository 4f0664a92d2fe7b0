// verify_ring: proves that the steps of every ring of attention (compile/mesh/ring.h) are whole: each step's keys are
// those of the rank that it takes them for, sums over keys have seen those of all ranks, and gradients of keys, to
// which every rank has added its share, are back on the rank that has the keys, before anything else uses them.
// Shardings (compile/mesh/verify_sharding.h) do not tell one rank's part from another's.
#pragma once

#include "graph/graph.h"

namespace temper {

// An error is a bug of a pass; it names the node and its tensors.
Status VerifyRings(const Graph& graph);

}  // namespace temper
