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
struct RunMemory {
  AvailableMemory host;
  std::optional<Device::Memory> gpu;
};

// Of what a process may still take of the host's memory, the part that is left for arenas.
Bytes RoomForArenas(Bytes available);

// Of what is free on an open GPU, the part that is left for the arena of `program`: not for what libraries load when
// kernels first run, nor for communicators between GPUs and their scratch.
Bytes RoomOnGpu(const Program& program, const Device::Memory& gpu);

// Limits within which a Program that takes more than `available` as it was `asked` for can be compiled again; nullopt
// where it fits, or where options say what is to lie where: whether that fits, reserving it will tell. The CPU's device
// and host tiers are parts of one memory; a GPU's are apart.
std::optional<MemorySpec> LimitsOfMachine(const Program& as_asked, const MemorySpec& asked, const RunMemory& available);

// The same for Programs of a forward pass alone, which `compile` makes; says what it has done, if anything.
using ForwardCompiler = std::function<Result<std::vector<Program>>(const MemorySpec&, ChosenMemory*)>;
Result<std::vector<Program>> CompileForwardWithin(const RunMemory& available, const MemorySpec& asked,
                                                  const ForwardCompiler& compile);

// Why they are set: "everything in memory takes 3.1 GiB, and of the 2.4 GiB available 2.2 GiB are left for it".
std::string DescribeLimits(const Program& as_asked, const RunMemory& available);

}  // namespace temper
