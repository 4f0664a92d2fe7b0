// The training step of a model: from its forward graph to Programs. This is the pass pipeline, and the one place that
// knows its order: fuse, differentiate, recompute, update in place, optimizer, place.
#pragma once

#include <vector>

#include "compile/recompute.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

struct AdamwSpec {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  // of matrices; vectors (norm weights, biases) do not decay, as in HF Trainer
  double max_norm = 1.0;    // 0: no clipping
};

struct StepSpec {
  int micro_batches = 1;
  Recompute recompute = Recompute::kNone;
  AdamwSpec adamw;
  int threads = 1;
};

// The graph of the update: sums of squares, clipping, AdamW for every trainable value of `forward`.
Graph BuildUpdate(const Graph& forward, const AdamwSpec& spec);

// Programs "train" (when a value is trainable) and "eval", which share one arena. `forward` ends in one
// linear_cross_entropy; `eval_forward` is the same model without what only training does (dropout).
Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec);

// Forward-only Programs sharing one arena: evaluation alone, or decoding steps of several lengths.
struct NamedGraph {
  std::string name;
  const Graph* graph;
};
Result<std::vector<Program>> CompileForward(const std::vector<NamedGraph>& graphs, int threads);

}  // namespace temper
