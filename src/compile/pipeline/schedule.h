// Schedules of a pipeline as data: which stage works on which micro-batch of which chunk, in which order. A schedule is
// one function that fills in lists (docs/howto/add_schedule.md); the checker simulates all stages together, so a
// schedule that it accepts cannot deadlock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "settings/mesh.h"

namespace temper {

enum class Work : uint8_t {
  kForward,
  kBackward,  // with the gradients of weights, unless those are separate work
  kWeights,   // gradients of weights
};

struct PipelineTask {
  Work work = Work::kForward;
  int chunk = 0, micro_batch = 0;
  std::string ToString() const;  // "F(chunk 1, micro-batch 0)"
  friend bool operator==(const PipelineTask&, const PipelineTask&) = default;
};

struct PipelineSchedule {
  int stages = 1, chunks_per_stage = 1, micro_batches = 1;
  bool splits_backward = false;                  // has kWeights work
  bool forward_only = false;                     // evaluation
  std::vector<std::vector<PipelineTask>> tasks;  // per stage

  int chunks() const { return stages * chunks_per_stage; }
  // Chunks are assigned round-robin, so that a micro-batch passes all stages in turn.
  int StageOf(int chunk) const { return chunk % stages; }
};

// Errors: a number of micro-batches that interleaving does not support.
Result<PipelineSchedule> MakePipelineSchedule(PipelineKind kind, int stages, int chunks_per_stage, int micro_batches);
PipelineSchedule MakeForwardSchedule(int stages, int chunks_per_stage, int micro_batches);

// Durations of one chunk's work, in any unit.
struct WorkTimes {
  double forward = 1, backward = 1, weights = 1;  // backward without the gradients of weights
};

// A value from one chunk to the next or, backward, to the previous one.
struct PipelineTransfer {
  int from_chunk = 0, to_chunk = 0, micro_batch = 0;
};

struct SimulatedPipeline {
  double makespan = 0;
  double bubble = 0;  // fraction of the stages' time spent waiting
  // In a feasible order. If all stages send and receive in this order, none wait for each other in a cycle.
  std::vector<PipelineTransfer> transfers;
};

// Simulates all stages together. Errors, which are bugs of a schedule: work that is missing, duplicated, on the wrong
// stage or out of order (gradients accumulate in the order of micro-batches); work that waits forever.
Result<SimulatedPipeline> SimulatePipeline(const PipelineSchedule& schedule, const WorkTimes& times);

}  // namespace temper
