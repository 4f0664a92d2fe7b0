// step_layout: lays out a micro-batch and the update that follows it as one graph. If a step has one micro-batch, its
// gradients need no memory at its start: each takes its bytes when it is first written, after activations have begun to
// be freed, and keeps them to the end of the step.
#pragma once

#include <vector>

#include "compile/layout/layout.h"
#include "graph/graph.h"

namespace temper {

struct StepLayout {
  Layout micro_batch, update;
  std::vector<ValueId> gradients;  // values of the micro-batch among its temporaries, from which the update reads them
};

// REQUIRES: the update runs right after the only micro-batch. Gradients on the disk, and those that the micro-batch
// adds to instead of creating, keep separate buffers.
StepLayout LayOutStep(const Graph& micro_batch, const Graph& update, int threads, const PackingGoals& goals = {});

// StepLayout::gradients.
std::vector<ValueId> GradientsOfStep(const Graph& micro_batch, const Graph& update);

}  // namespace temper
