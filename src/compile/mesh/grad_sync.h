// grad_sync: gradients added up between ranks, once per step: by its last micro-batch, whose backward has what hides
// them (compile/mesh/collectives.h). These are
//
//   of weights that ranks have copies of, or see other tokens of: the terms of each
//   of gathered weights, where asked for, instead of once per micro-batch. Differentiate is told that the gathered
//   weight is what is trained, so that its gradient stays whole and adds up over micro-batches; the last one takes it
//   back through the gathers. Costs a buffer of f32 for every gathered element, which sharding is there to save; saves
//   all reductions but one.
#pragma once

#include <string>
#include <vector>

#include "compile/mesh/decisions.h"
#include "graph/graph.h"
#include "tensor/mesh.h"

namespace temper {

// A weight and the way from its stored part to what a block computes with.
struct GatheredUse {
  ValueId weight = kNoValue;
  std::vector<const Node*> gathers;  // from the stored part on; nodes of the graph that was searched
  ValueId whole() const { return gathers.back()->outputs[0]; }
};

// All uses of the trainable weights that are used through gathers alone. REQUIRES: a partitioned forward graph, which
// must outlive the result.
std::vector<GatheredUse> GatheredUses(const Graph& local);

// The name of the gradient buffer of the n-th use of a weight: "grad:W.whole", "grad:W.whole.1".
std::string WholeGradientName(const std::string& weight, int use);

// `local` with the gathered values marked trainable instead of the weights; named as above without "grad:".
Graph TrainGathered(const Graph& local);
// The reverse, on what Differentiate made of that: marks as in `local`.
void RestoreTrainable(const Graph& local, Graph* differentiated);

// Whether ranks have terms of the gradient of any trainable weight of `graph`, which are added up once per step.
bool HasTerms(const Graph& graph);

// `last`, the differentiated last micro-batch of a step, with all that adds up gradients between ranks, each behind
// what makes its term: gradients of `whole` (GatheredUses of the forward graph that TrainGathered marked; else empty)
// become those of the weights' parts. REQUIRES: before ScheduleCollectives.
Graph SyncGradients(Graph last, const std::vector<GatheredUse>& whole, const Graph& forward, const Mesh& mesh);

// Which of the two, of gathered weights, for `micro_batches`, from rank 0's graph: unasked `step` where its buffers
// take a tenth of what the rank keeps anyway (weights, their gradients and states), or less. Appends to `decisions`
// where there is a choice.
GradSync DecideGradSync(const Graph& local, int micro_batches, const DecisionOptions& options,
                        std::vector<Decision>* decisions);

}  // namespace temper
