// gather_once: gathers the weights of a pipeline's stage once per step, before its first micro-batch, instead of in
// every forward and backward. Weights kept from a forward to its backward would be kept once per micro-batch in flight.
#pragma once

#include "compile/pipeline/pipeline.h"

namespace temper {

struct GatheredOnce {
  PipelinedGraph stage;  // without the gathers: gathered weights are buffers (Role::kCache) that it reads
  Graph gathers;         // fills these buffers, in the order in which the stage first uses them
};

// REQUIRES: a stage of a differentiated graph, before ScheduleCollectives. Stages cut for different micro-batches of
// one step have the same buffers.
GatheredOnce GatherOnce(const PipelinedGraph& stage);

}  // namespace temper
