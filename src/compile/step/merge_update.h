// merge_update: the update beside the backward. Where nothing is clipped, a weight can be updated as soon as its
// gradient is whole and nothing reads the weight any more: copies of states that live elsewhere
// (compile/residency/residency.h) go beside what is left of the backward, and the gradients of a step of one
// micro-batch are gone when they have been used.
#pragma once

#include "graph/graph.h"

namespace temper {

// `last`, a step's last micro-batch, with the nodes of `update` among its own, each behind the last that makes what it
// reads or reads what it overwrites; of one in the background, behind the nodes of the segment after, which hides it.
// Nodes stand in the phase and block of those that they are behind; at the end of the graph, in their own.
// `alone`: the step has no other micro-batch: its gradients are activations.
// REQUIRES: after ScheduleCollectives, before UpdateInPlace.
Graph MergeUpdate(Graph last, const Graph& update, bool alone);

}  // namespace temper
