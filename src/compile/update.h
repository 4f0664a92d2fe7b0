// The update of a training step: gradients added up between ranks, clipping, AdamW.
#pragma once

#include "graph/graph.h"
#include "tensor/mesh.h"

namespace temper {

struct AdamwSpec {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  // of matrices; vectors (norm weights, biases) do not decay, as in HF Trainer
  double max_norm = 1.0;    // 0: no clipping
};

// The update of every trainable value of `forward`, the graph of one rank of `mesh`. A weight's gradient is added up
// over the axes along which ranks contribute terms (Shard::partial), its sum of squares over those that split it, so
// that the norm counts every element once. `reduces_gathered`: gradients of gathered weights come as those of what was
// gathered (compile/grad_sync.h), and are reduced first.
Graph BuildUpdate(const Graph& forward, const AdamwSpec& spec, const Mesh& mesh, bool reduces_gathered = false);

}  // namespace temper
