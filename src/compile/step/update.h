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
Graph BuildUpdate(const Graph& forward, const UpdateSpec& spec, const Mesh& mesh, const UpdateStage& stage = {});

}  // namespace temper
