// The update of a training step: clipping, and an optimizer's op for every trainable value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/update_rule.h"
#include "tensor/mesh.h"

namespace temper {

struct UpdateSpec {
  const UpdateRule* rule = &DefaultUpdateRule();
  Attributes settings = rule->Settings();
  double weight_decay = 0;  // of values that decay (Value::decays)
  double max_norm = 1.0;    // 0: no clipping
};

// A stage of a pipeline and the weights that it shares with other stages.
struct UpdateStage {
  int stage = 0;
  // The stages of each shared weight (tied embeddings), ascending; at most two.
  std::map<std::string, std::vector<int>> holders;
};

// Builds the update of every trainable value of `forward`, the graph of one rank of `mesh`; the last micro-batch has
// already summed their gradients over ranks (compile/mesh/grad_sync.h). Sums of squares are summed over the axes that
// split a weight, so that the norm counts every element once. Pipeline stages exchange their gradients of a shared
// weight and sum their sums of squares. REQUIRES: a forward graph.
Graph BuildUpdate(const Graph& forward, const UpdateSpec& spec, const Mesh& mesh, const UpdateStage& stage = {});

}  // namespace temper
