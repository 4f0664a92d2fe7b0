// What this machine's memory leaves for a run: asked of its GPUs and of what communicates between them. What a run
// makes of the numbers: compile/memory/machine_room.h.
#pragma once

#include "compile/memory/machine_room.h"
#include "device/device.h"
#include "program/program.h"

namespace temper {

// Of `free` bytes on an open GPU, the part that is left for the arena of `program`, of a pipeline of `stages`: not for
// what libraries load when kernels first run, nor for communicators between GPUs and their scratch.
Bytes RoomOnGpu(const Program& program, Bytes free, int stages = 1);

// `gpu` is open and outlives the result: a message may ask who holds its memory.
Result<GpuRoom> RoomOf(Device& gpu);

}  // namespace temper
