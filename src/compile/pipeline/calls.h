// pipeline_calls: one stage's program of a schedule (pipeline_schedule.h): which parts it calls in which order, and
// which slots of memory each micro-batch in flight has.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compile/pipeline/schedule.h"

namespace temper {

// What a stage's program runs of a chunk: transfers are parts of their own, because they begin before the work does.
enum class PartKind : uint8_t { kReceiveForward, kForward, kReceiveBackward, kBackward, kWeights };
inline constexpr int kNumPartKinds = 5;

// What of a chunk must live from one part to another has one slot of memory per micro-batch in flight, of three kinds.
enum class SlotKind : uint8_t { kReceivedForward, kKept, kReceivedBackward };
inline constexpr int kNumSlotKinds = 3;
using Slots = std::array<int, kNumSlotKinds>;

struct PipelineCall {
  PartKind part = PartKind::kForward;
  int chunk = 0, micro_batch = 0;
  Slots slots = {};  // those that do not exist yet are 0
};

// One stage's program: its tasks in order, and before them, one task early, the receives.
struct StageCalls {
  std::vector<PipelineCall> calls;
  std::vector<Slots> slots;  // per chunk of the pipeline: how many there are; 0 of those that lie elsewhere
};
StageCalls CallsOfStage(const PipelineSchedule& schedule, const SimulatedPipeline& simulated, int stage);

}  // namespace temper
