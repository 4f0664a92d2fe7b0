// The machine's memory as the limit of a run whose options set none: what does not fit is given to memory tiers instead
// of being refused when it is reserved. The policy, on numbers; run/machine_limits.h asks the machine for them.
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
  // Of `free` bytes, the part that is left for the arena of a Program of a pipeline of `stages`.
  std::function<Bytes(const Program&, Bytes free, int stages)> for_arena;
  std::function<std::string()> holders;  // what other processes hold of it, for messages; may be empty
};

// What a process may still take: of the host's memory and, where it computes on a GPU, of the GPU's.
struct ProcessMemory {
  AvailableMemory host;
  std::optional<GpuRoom> gpu;
  int stages = 1;  // of the pipeline that it is part of
};

// What a rank may take of its machine's memory.
struct RankMemory {
  AvailableMemory each;  // where all ranks of the machine take alike
  // Ranks r with the same r / ranks_per_machine share one machine's memory; 0: it is not known which do.
  int ranks_per_machine = 0;
  std::optional<GpuRoom> gpu;  // of its own, where it has one: as much is free on all
};

// Of what a process may still take of the host's memory, the part that is left for arenas.
Bytes RoomForArenas(Bytes available);

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
