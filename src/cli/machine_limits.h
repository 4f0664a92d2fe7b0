// The machine's memory as the limit of a run whose options set none: what does not fit is given to memory tiers instead
// of being refused when it is to be reserved.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/machine_memory.h"
#include "compile/memory_policy.h"
#include "device/device.h"
#include "program/program.h"

namespace temper {

// What a process may still take: of the host's memory and, where it computes on a GPU, of the GPU's.
struct ProcessMemory {
  AvailableMemory host;
  std::optional<Device::Memory> gpu;
  Device* device = nullptr;  // that GPU, where it is open; outlives this: a message may ask who holds its memory
  int stages = 1;            // of the pipeline that it is part of
};

// What a rank may take of its machine's memory.
struct RankMemory {
  AvailableMemory each;  // where all ranks of the machine take alike
  // Ranks r with the same r / ranks_per_machine share one machine's memory; 0: it is not known which do.
  int ranks_per_machine = 0;
  std::optional<Device::Memory> gpu;  // of its own, where it has one: as much is free on all
  Device* device = nullptr;           // as in ProcessMemory
};

// Of what a process may still take of the host's memory, the part that is left for arenas.
Bytes RoomForArenas(Bytes available);

// Of what is free on an open GPU, the part that is left for the arena of `program`, of a pipeline of `stages`: not for
// what libraries load when kernels first run, nor for communicators between GPUs and their scratch.
Bytes RoomOnGpu(const Program& program, const Device::Memory& gpu, int stages = 1);

// Stages of a pipeline differ in what they need. Those that need less than their share leave the rest to the others on
// their machine. `needs[s]`: the arenas of a rank of stage s; stages have equally many of the `ranks`, one after
// another. Returns what a rank of each stage may take: the same on all machines, so that all of a stage decide alike.
std::vector<Bytes> SharesOfStages(const RankMemory& memory, const std::vector<Bytes>& needs, int ranks);

// Limits within which a Program that takes more than `available` as it was `asked` for can be compiled again; nullopt
// where it fits, or where options say what is to lie where: whether that fits, reserving it will tell. The CPU's device
// and host tiers are parts of one memory; a GPU's are apart.
std::optional<MemorySpec> LimitsOfMachine(const Program& as_asked, const MemorySpec& asked,
                                          const ProcessMemory& available);

// The same for Programs of a forward pass alone, which `compile` makes; says what it has done, if anything.
using ForwardCompiler = std::function<Result<std::vector<Program>>(const MemorySpec&, ChosenMemory*)>;
Result<std::vector<Program>> CompileForwardWithin(const ProcessMemory& available, const MemorySpec& asked,
                                                  const ForwardCompiler& compile);

// Why they are set, of a GPU and its host whichever lacks room: "everything in memory takes 3.1 GiB, and of the 2.4 GiB
// available 2.2 GiB are left for it".
std::string DescribeLimits(const Program& as_asked, const ProcessMemory& available);

}  // namespace temper
