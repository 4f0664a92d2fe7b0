// The GPU backend's kernels on the emulator, for tests: operands lie in the host's memory, Run runs the kernel at once.
#pragma once

#include <functional>
#include <memory>

#include "backend/gpu/emulator/simt.h"
#include "device/device_exchange.h"
#include "device/kernel.h"

namespace temper {

namespace gpu {
class PackedAttention;
}

// Makes a kernel's exchange of numbers with other ranks; addresses are the host's.
using EmulatedExchanges = std::function<Result<std::unique_ptr<DeviceExchange>>(AxisSet)>;

// `packed`: a library that attends in the host's memory (gpu/kernels.h); outlives them.
// Run's error is the fault that the emulator or the kernel itself found. Thread rule: the emulator's.
std::unique_ptr<KernelTable> MakeEmulatedGpuKernels(const simt::Machine& machine,
                                                    const EmulatedExchanges& exchanges = nullptr,
                                                    gpu::PackedAttention* packed = nullptr);

}  // namespace temper
