// The kernel of an instruction on a GPU, from those in this folder.
#pragma once

#include "backend/gpu/kernels.h"

namespace temper::gpu {

// kUnsupported, with the reason, if there is none. What `context` points to must outlive the kernel.
Result<std::unique_ptr<Kernel>> MakeGpuKernel(const KernelSpec& spec, const Context& context);

}  // namespace temper::gpu
