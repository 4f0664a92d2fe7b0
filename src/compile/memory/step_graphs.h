// StepGraphs: the graphs that Programs are compiled from, together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"

namespace temper {

// The graphs of one Program, before UpdateInPlace.
struct ProgramGraphs {
  // Consecutive micro-batches with one graph. The first of a step creates the gradients, later ones add to them, and
  // the last may sum them over ranks.
  struct MicroBatches {
    PipelinedGraph graph;  // without parts if there is no pipeline
    int count = 1;
  };
  // For a stage of a pipeline.
  struct Pipeline {
    StageCalls calls;
    Graph gathers;  // of weights that are gathered once per step (compile/mesh/gather_once.h); else empty
  };

  std::string name;                         // of the Program
  bool trains = false;                      // has a backward and an update
  bool shorter = false;                     // as RunGraph's
  std::vector<MicroBatches> micro_batches;  // in order; one if it does not train
  Graph update;  // empty if it does not train, or if the last micro-batch contains it (compile/step/merge_update.h)
  std::optional<Pipeline> pipeline;

  const Graph& front() const { return micro_batches.front().graph.graph; }
};

// Those of Programs that share arenas. If one trains, the first does: its time is what counts. Others that train do the
// same step with shorter rows. Those of shorter rows come last.
struct StepGraphs {
  std::vector<ProgramGraphs> programs;

  bool trains() const { return !programs.empty() && programs.front().trains; }
  const ProgramGraphs& train() const { return programs.front(); }  // REQUIRES: trains()
};

}  // namespace temper
