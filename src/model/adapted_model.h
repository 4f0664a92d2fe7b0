// AdaptedModel: a model as a run uses it: with what of it is trained, its base kept in some format. The one place where
// its forward graphs are made, for training, evaluation and decoding alike.
#pragma once

#include "graph/graph.h"
#include "model/base_format.h"
#include "model/lora.h"
#include "model/lora_rewrite.h"
#include "model/model.h"
#include "model/trainable_set.h"

namespace temper {

struct AdaptedModel {
  const Model& model;        // REQUIRES: outlives this
  TrainableSet trains = {};  // empty: nothing, the bare model
  BaseFormat base = {};      // REQUIRES: as computed, if all weights are trained
  double dropout = 0;        // of adapters, in training
  RowNorms norms = RowNorms::kComputed;

  // `forward`: the bare model's. `training`: with dropout, and weights that are trained.
  Graph Adapted(Graph forward, bool training) const;
  Graph Forward(const ForwardSpec& spec) const { return Adapted(model.Forward(spec), spec.training); }
};

}  // namespace temper
