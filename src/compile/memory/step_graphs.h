// StepGraphs: the graphs that a step and an evaluation are compiled from.
#pragma once

#include <optional>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"

namespace temper {

// The graphs of a step, before UpdateInPlace.
struct StepGraphs {
  // Consecutive micro-batches with one graph. The first of a step creates the gradients, later ones add to them, and
  // the last may sum them over ranks.
  struct MicroBatches {
    PipelinedGraph graph;  // without parts if there is no pipeline
    int count = 1;
  };
  std::vector<MicroBatches> train;  // in order
  PipelinedGraph eval;
  Graph update;  // empty if the last micro-batch contains it (compile/step/merge_update.h)
  // For a stage of a pipeline.
  struct Pipeline {
    StageCalls train, eval;
    Graph gathers;  // of weights that are gathered once per step (compile/mesh/gather_once.h); else empty
  };
  std::optional<Pipeline> pipeline;
};

}  // namespace temper
