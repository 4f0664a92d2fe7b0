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

// How a kernel gets what it exchanges numbers with other ranks through; addresses are the host's.
using EmulatedExchanges = std::function<Result<std::unique_ptr<DeviceExchange>>(AxisSet)>;

// `packed`: a library that attends in the host's memory (gpu/kernels.h); outlives them.
// Run's error is what the emulator or the kernel itself found wrong. Thread rule: the emulator's.
std::unique_ptr<KernelTable> MakeEmulatedGpuKernels(const simt::Machine& machine,
                                                    const EmulatedExchanges& exchanges = nullptr,
                                                    gpu::PackedAttention* packed = nullptr);

}  // namespace temper
