// ring: attention over tokens that are split among the ranks of cp (tensor/context_part.h). Partition leaves one
// attention node with this information; this pass replaces it by the steps of a ring. Queries stay. Keys and values are
// shifted from rank to rank; in step s of n a rank has those of the s-th rank before it. The shift for the next step
// runs beside the kernel of the current one.
//
//   forward    o and lse accumulate over one rank's keys after the other, in f32 (graph/ops/attention_step.cc)
//   backward   every step starts from the final o and lse. d_q accumulates in place. The d_k and d_v of a rank's keys
//              travel after the keys: each rank adds its term, and after n shifts they are back at their rank.
//
// Traffic per rank: forward n-1 shifts of k and v; backward the same, and n shifts of d_k and d_v in f32. Memory:
// k and v of two ranks at a time, one sum of o; backward two each of d_k and d_v.
#pragma once

#include "graph/graph.h"

namespace temper {

struct RingSpec {
  bool background = true;  // shifts run beside kernels
};

// REQUIRES: after recompute (clones are lowered like their originals), before UpdateInPlace.
Graph LowerRings(Graph graph, const RingSpec& spec);

}  // namespace temper
