// The GPU backend's kernels on the emulator, for tests: operands lie in the host's memory, Run runs the kernel at once.
#pragma once

#include <memory>

#include "backend/gpu/emulator/simt.h"
#include "device/kernel.h"

namespace temper {

// Run's error is what the emulator or the kernel itself found wrong. Thread rule: the emulator's.
std::unique_ptr<KernelTable> MakeEmulatedGpuKernels(const simt::Machine& machine);

}  // namespace temper
