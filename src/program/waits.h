// Waits: which instructions of a Program must wait for collectives and moves in the background. They follow from the
// addresses alone, so the executor that runs a Program and the simulator that predicts it find the same ones.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace temper {

// What runs beside the kernels (attribute `background`), in one order each: collectives, those among them whose result
// is needed soon (attribute `soon`), sends, receives, and moves: fetches and evictions, of the host and of the disk.
inline constexpr size_t kBackgroundLanes = 8, kCollectiveLane = 0, kSoonLane = 1, kSendLane = 2, kReceiveLane = 3,
                        kFirstMoveLane = 4;
constexpr bool IsCollectiveLane(size_t lane) {
  return lane == kCollectiveLane || lane == kSoonLane;
}
// Of these lanes an instruction may begin before the one before it has ended.
constexpr bool IsDiskLane(size_t lane) {
  return lane >= kFirstMoveLane + 2;
}
size_t LaneOf(const Instruction& instruction, const Binding& binding);
// What traces call them.
inline constexpr std::array<const char*, kBackgroundLanes> kQueueOfLane = {
    "communicate",     "communicate soon", "send",           "receive",
    "fetch from host", "evict to host",    "read from disk", "write to disk"};
using LaneCounts = std::array<uint32_t, kBackgroundLanes>;

// Per instruction in the order of the schedule: how many of the background instructions of each lane, in the order in
// which they are issued, must be complete before it is run or issued. 0 of its own lane for those in the background,
// where it waits without being told to, but of the disk's. An instruction waits for those that touch what it writes or
// write what it touches, and for no others: collectives in the background meet their groups apart from those that are
// needed at once (Communicator::Collectives).
std::vector<LaneCounts> FindWaits(const Program& program);

}  // namespace temper
