// Waits: which instructions of a Program must wait for collectives in the background. They follow from the addresses
// alone, so the executor that runs a Program and the simulator that predicts it find the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace temper {

// Per instruction in the order of the schedule: how many of the background instructions (attribute `background`), in
// the order in which they are issued, must be complete before it runs. 0 for those in the background themselves: they
// run in order, and so wait for each other without being told to. An instruction waits for those that touch what it
// writes or write what it touches, and, where both talk to other ranks, for all: ranks must meet in the same order.
std::vector<uint32_t> FindWaits(const Program& program);

}  // namespace temper
