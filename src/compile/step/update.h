// The update of a training step: clipping, AdamW.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "tensor/mesh.h"

namespace temper {

struct AdamwSpec {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  // of matrices; vectors (norm weights, biases) do not decay, as in HF Trainer
  double max_norm = 1.0;    // 0: no clipping
};

// Where a stage of a pipeline is, as its update sees the others.
struct UpdateStage {
  int stage = 0;
  // The stages that have each weight that several have (tied embeddings), ascending; two at most.
  std::map<std::string, std::vector<int>> holders;
};

// The update of every trainable value of `forward`, the graph of one rank of `mesh`, whose gradients the last
// micro-batch has added up between ranks (compile/mesh/grad_sync.h). Sums of squares are added up over the axes that
// split a weight, so that the norm counts every element once. In a pipeline stages give each other their gradients of a
// weight that both have, and add up their sums of squares. REQUIRES: a forward graph.
Graph BuildUpdate(const Graph& forward, const AdamwSpec& spec, const Mesh& mesh, const UpdateStage& stage = {});

}  // namespace temper
