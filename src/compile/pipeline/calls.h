// calls: one stage's calls in a schedule (compile/pipeline/schedule.h): the order of its parts, and the memory slots of
// each micro-batch in flight.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compile/pipeline/schedule.h"

namespace temper {

// The parts of a chunk. Transfers are separate parts, because they begin before the work does.
enum class PartKind : uint8_t { kReceiveForward, kForward, kReceiveBackward, kBackward, kWeights };
inline constexpr int kNumPartKinds = 5;

// Values of a chunk that live from one part to another are in slots, one per micro-batch in flight, of three kinds.
enum class SlotKind : uint8_t { kReceivedForward, kKept, kReceivedBackward };
inline constexpr int kNumSlotKinds = 3;
using Slots = std::array<int, kNumSlotKinds>;

struct PipelineCall {
  PartKind part = PartKind::kForward;
  int chunk = 0, micro_batch = 0;
  Slots slots = {};  // 0: not allocated yet
};

// One stage's calls: its tasks in order, with each receive one task early.
struct StageCalls {
  std::vector<PipelineCall> calls;
  std::vector<Slots> slots;  // per chunk of the pipeline: number of slots; 0 for chunks of other stages
};
StageCalls CallsOfStage(const PipelineSchedule& schedule, const SimulatedPipeline& simulated, int stage);

}  // namespace temper
