// PipelineFacts: how the stages of a pipeline share the work, for display.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compile/memory/memory_policy.h"
#include "compile/train_step.h"

namespace temper {

struct PipelineFacts {
  std::string schedule;     // "1f1b"
  std::vector<int> layers;  // blocks of each chunk; chunks are assigned to stages round-robin
  int stages = 1;
  int micro_batches = 1;
  double bubble = 0;             // fraction of the stages' time spent waiting, if all blocks take equally long
  int in_flight = 0;             // most micro-batches in flight on this stage, summed over its chunks
  std::string ToString() const;  // "1f1b: 2 stages, runs of 4, 4 blocks, 8 micro-batches, bubble 11.1 %"
};

// Of the rank of `mesh`, with the blocks of each stage. `full`: all weights are trained.
Result<PipelineFacts> PipelineFactsOf(const MeshSpec& mesh, int micro_batches, const StepChoice& choice, bool full);

}  // namespace temper
