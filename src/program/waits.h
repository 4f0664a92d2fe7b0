// Waits: which instructions of a Program must wait for collectives and moves in the background. They follow from the
// addresses alone, so the executor that runs a Program and the simulator that predicts it find the same ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace temper {

// What runs beside the kernels (attribute `background`), each in one order: collectives, those among them whose result
// is needed soon (attribute `soon`), sends, receives, and moves: fetches and evictions, from host and disk.
inline constexpr size_t kBackgroundLanes = 8, kCollectiveLane = 0, kSoonLane = 1, kSendLane = 2, kReceiveLane = 3,
                        kFirstMoveLane = 4;
constexpr bool IsCollectiveLane(size_t lane) {
  return lane == kCollectiveLane || lane == kSoonLane;
}
// In these lanes an instruction may begin before the previous one has ended.
constexpr bool IsDiskLane(size_t lane) {
  return lane >= kFirstMoveLane + 2;
}
size_t LaneOf(const Instruction& instruction, const Binding& binding);
// That of a fetch from `far`, or of an eviction to it.
size_t LaneOfMove(Op op, Tier far);
// Their names in traces.
inline constexpr std::array<const char*, kBackgroundLanes> kQueueOfLane = {
    "communicate",     "communicate soon", "send",           "receive",
    "fetch from host", "evict to host",    "read from disk", "write to disk"};
using LaneCounts = std::array<uint32_t, kBackgroundLanes>;

// Per instruction in the order of the schedule: how many background instructions of each lane, in the order of issue,
// must be complete before it is run or issued. For a background instruction it is 0 for its own lane, which is in order
// anyway, except for the disk's. An instruction waits for those that touch what it writes or write what it touches, and
// for no others: background collectives meet their groups apart from those that are needed at once
// (Communicator::Collectives).
std::vector<LaneCounts> FindWaits(const Program& program);
// With another schedule of its bindings.
std::vector<LaneCounts> FindWaits(const Program& program, std::span<const Call> schedule);

}  // namespace temper
