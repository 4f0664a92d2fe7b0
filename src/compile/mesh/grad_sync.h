// grad_sync: sums gradients over ranks once per step, in its last micro-batch, whose backward hides the collectives
// (compile/mesh/collectives.h). These are the gradients
//
//   of weights that several ranks use with different tokens, as copies or as the same part: each rank has a term
//   of gathered weights, if chosen, instead of once per micro-batch. The gathered weight is marked trainable for
//   Differentiate, so that its gradient stays whole and accumulates over micro-batches; the last one reduces it back
//   through the gathers. Costs one f32 per gathered element, which sharding would save; saves all reductions but one.
#pragma once

#include <string>
#include <vector>

#include "compile/mesh/decisions.h"
#include "compile/step/update.h"
#include "graph/graph.h"
#include "tensor/mesh.h"

namespace temper {

// A weight and the gathers from its stored part to the value that a block computes with.
struct GatheredUse {
  ValueId weight = kNoValue;
  std::vector<const Node*> gathers;  // starting at the stored part; nodes of the searched graph
  ValueId whole() const { return gathers.back()->outputs[0]; }
};

// All uses of trainable weights that are used only through gathers.
// REQUIRES: a partitioned forward graph, which must outlive the result.
std::vector<GatheredUse> GatheredUses(const Graph& local);

// The name of the gradient buffer of the n-th use of a weight: "grad:W.whole", "grad:W.whole.1".
std::string WholeGradientName(const std::string& weight, int use);

// `local` with the gathered values marked trainable instead of the weights. They get the names above without "grad:".
Graph TrainGathered(const Graph& local);
// The reverse, on the result of Differentiate: marks the same values trainable as `local`.
void RestoreTrainable(const Graph& local, Graph* differentiated);

// Whether the gradient of any trainable weight of `graph` is
// a sum of terms of several ranks, to be added once per step.
bool HasTerms(const Graph& graph);

// Adds to `last`, the differentiated last micro-batch of a step, all collectives that sum gradients over ranks, each
// after the node that makes its term. Gradients of `whole` (GatheredUses of the forward graph that TrainGathered
// marked; else empty) become those of the weights' parts. REQUIRES: before ScheduleCollectives.
Graph SyncGradients(Graph last, const std::vector<GatheredUse>& whole, const Graph& forward, const Mesh& mesh);

// Chooses when gradients of gathered weights are reduced, for `micro_batches`, from
// rank 0's graph. By default kStep if its buffers take at most a tenth of the rank's
// weights, gradients and states of `update`. Appends to `decisions` if there is a choice.
GradSync DecideGradSync(const Graph& local, int micro_batches, const UpdateSpec& update, const DecisionOptions& options,
                        std::vector<Decision>* decisions);

}  // namespace temper
