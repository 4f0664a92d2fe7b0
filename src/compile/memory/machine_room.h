// The machine's memory as the limit of a run whose options set none: values that
// do not fit go to farther memory tiers instead of failing the allocation. This is
// the policy on given numbers; run/machine_limits.h queries the machine for them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/machine_memory.h"
#include "compile/memory/memory_policy.h"
#include "program/program.h"

namespace temper {

// An open GPU's memory.
struct GpuRoom {
  Bytes total, free;
  // The part of `free` bytes available to the arena of a Program of a pipeline with `stages` stages.
  std::function<Bytes(const Program&, Bytes free, int stages)> for_arena;
  std::function<std::string()> holders;  // describes memory held by other processes, for messages; may be empty
};

// Memory that a process may still take: on the host and, if it computes on a GPU, on the GPU.
struct ProcessMemory {
  AvailableMemory host;
  std::optional<GpuRoom> gpu;
  int stages = 1;  // of its pipeline
};

// Memory that a rank may take on its machine.
struct RankMemory {
  AvailableMemory each;  // if all ranks of the machine take equal shares
  // Ranks r with the same r / ranks_per_machine share one machine's memory; 0: unknown.
  int ranks_per_machine = 0;
  std::optional<GpuRoom> gpu;  // its own, if it has one; all GPUs have the same free memory
  bool packs = false;          // its kernels read packed weights, so frozen ones are packed if there is room
};

// The part of a process's `available` host memory that arenas may use.
Bytes RoomForArenas(Bytes available);

// Pipeline stages differ in their needs. A stage that needs less than its share leaves the rest to the others on its
// machine. `needs[s]`: bytes of arenas of a rank of stage s; the stages split the `ranks` evenly, in order. Returns the
// bytes that a rank of each stage may take: the same on all machines, so that all ranks of a stage decide alike.
std::vector<Bytes> SharesOfStages(const RankMemory& memory, const std::vector<Bytes>& needs, int ranks);

// Whether the memory holds what a Program takes of it: on a GPU, and pinned behind it, or on the host.
bool Fits(const Program& program, const ProcessMemory& available);

// Limits for compiling a Program again that, compiled as `asked`, takes more than `available`. nullopt if it fits, or
// if options name tiers: then CheckRoom or, on a GPU, the allocation decides whether it fits. On the CPU, the device
// and host tiers share one memory; on a GPU they are separate.
std::optional<MemorySpec> LimitsOfMachine(const Program& as_asked, const MemorySpec& asked,
                                          const ProcessMemory& available);

// OutOfMemory if options name tiers of a CPU's memory and what they hold does not fit there: the kernel would end the
// run once it has begun.
Status CheckRoom(const Program& program, const MemorySpec& asked, const ProcessMemory& available);

// The reason for the limits (for a GPU, about the GPU or its host, whichever lacks memory): "everything in memory takes
// 3.1 GiB, but only 2.2 GiB of 2.4 GiB available can be used for it".
std::string DescribeLimits(const Program& as_asked, const ProcessMemory& available);

}  // namespace temper
