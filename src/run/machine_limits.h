// The memory that this machine leaves for a run, from its GPUs and the communication between them.
// compile/memory/machine_room.h uses these numbers.
#pragma once

#include "compile/memory/machine_room.h"
#include "device/device.h"
#include "program/program.h"

namespace temper {

// The part of `free` bytes on an open GPU that is left for the arena of `program`, of a pipeline of `stages`: without
// the libraries loaded when kernels first run, and without communicators between GPUs and their scratch.
Bytes RoomOnGpu(const Program& program, Bytes free, int stages = 1);

// `gpu` is open and outlives the result: messages query which processes hold its memory.
Result<GpuRoom> RoomOf(Device& gpu);

}  // namespace temper
