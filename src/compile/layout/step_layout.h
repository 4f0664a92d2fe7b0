// step_layout: a micro-batch and the update that follows it, laid out as one. Where a step has one micro-batch its
// gradients need not be there while it begins: each takes its bytes when it is first written, when activations have
// begun to go, and keeps them to the end of the step.
#pragma once

#include <vector>

#include "compile/layout/layout.h"
#include "graph/graph.h"

namespace temper {

struct StepLayout {
  Layout micro_batch, update;
  std::vector<ValueId> gradients;  // values of the micro-batch that lie among its temporaries, where update finds them
};

// REQUIRES: the update comes right after the one micro-batch. Gradients on the disk, and those that the micro-batch
// adds to instead of making them, stay buffers of their own.
StepLayout LayOutStep(const Graph& micro_batch, const Graph& update, int threads);

}  // namespace temper
