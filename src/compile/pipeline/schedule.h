// Schedules of a pipeline as data: which stage works on which micro-batch of which run of blocks, in which order. A
// schedule is one function that fills in lists (docs/howto/add_schedule.md); the checker runs the lists of all stages
// against each other, so what it accepts cannot deadlock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

enum class PipelineKind : uint8_t {
  kOneForwardOneBackward,  // a backward as soon as there is one: at most stages - stage micro-batches are in flight
  kInterleaved,            // the same with several chunks per stage: a shorter bubble for more transfers
  kZeroBubble,             // gradients of weights, which nobody waits for, are left for the bubble
  kGpipe,                  // all forwards, then all backwards: every micro-batch is in flight
};
std::string_view ToString(PipelineKind kind);  // "1f1b"

enum class Work : uint8_t {
  kForward,
  kBackward,  // with the gradients of weights, where those are not work of their own
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
  bool splits_backward = false;                  // there is kWeights work
  bool forward_only = false;                     // evaluation
  std::vector<std::vector<PipelineTask>> tasks;  // per stage

  int chunks() const { return stages * chunks_per_stage; }
  // Chunks are dealt in turn, so that a micro-batch goes round the stages.
  int StageOf(int chunk) const { return chunk % stages; }
};

// Errors: micro-batches that interleaving cannot deal.
Result<PipelineSchedule> MakePipelineSchedule(PipelineKind kind, int stages, int chunks_per_stage, int micro_batches);
PipelineSchedule MakeForwardSchedule(int stages, int chunks_per_stage, int micro_batches);

// Of one chunk's work, in any unit.
struct WorkTimes {
  double forward = 1, backward = 1, weights = 1;  // backward without the gradients of weights
};

// A value that one chunk has made and the next or, backward, the one before it needs.
struct PipelineTransfer {
  int from_chunk = 0, to_chunk = 0, micro_batch = 0;
};

struct SimulatedPipeline {
  double makespan = 0;
  double bubble = 0;  // share of the stages' time in which they wait
  // In an order in which they can be made. Whoever sends and receives in this order waits for nobody who waits for him.
  std::vector<PipelineTransfer> transfers;
};

// Runs all stages against each other. Errors, which are bugs of a schedule: work that is missing, there twice, on
// another stage than its chunk or out of turn (gradients add up in the order of micro-batches); work that waits for
// ever.
Result<SimulatedPipeline> SimulatePipeline(const PipelineSchedule& schedule, const WorkTimes& times);

}  // namespace temper
