// merge_update: runs the update during the backward. Without clipping, a weight can be updated as soon as its gradient
// is complete and nothing reads the weight any more: copies of states from other tiers (compile/residency/residency.h)
// overlap with the rest of the backward, and the gradients of a step of one micro-batch are freed after use.
#pragma once

#include "graph/graph.h"

namespace temper {

// Inserts the nodes of `update` into `last`, a step's last micro-batch: each after the last node that makes one of its
// inputs or reads a value that it overwrites. If that node runs in the background, after the next segment, which hides
// it. Inserted nodes take the phase and block of the node that they follow; at the end of the graph they keep their
// own. `alone`: the step has no other micro-batch: its gradients are activations.
// REQUIRES: after ScheduleCollectives, before UpdateInPlace.
Graph MergeUpdate(Graph last, const Graph& update, bool alone);

}  // namespace temper
