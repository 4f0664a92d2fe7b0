// verify_ring: proves that every ring of attention (compile/mesh/ring.h) is complete: each step's keys are those of the
// rank that it expects; sums over keys cover the keys of all ranks, and gradients of keys contain every rank's term and
// are back on the keys' rank, before anything else uses them. Shardings (compile/mesh/verify_sharding.h) do not
// distinguish one rank's part from another's.
#pragma once

#include "graph/graph.h"

namespace temper {

// An error is a bug of a pass; it names the node and its tensors.
Status VerifyRings(const Graph& graph);

}  // namespace temper
