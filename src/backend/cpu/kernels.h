// The fast kernels' factories, one per op: internal to backend/cpu. `spec` has passed the op's shape rule.
// Each returns nullptr where it has no kernel for these types on that instruction set; the reference kernel then
// serves.
#pragma once

#include <memory>

#include "backend/cpu/isa.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES for all: isa >= kAvx2.
std::unique_ptr<Kernel> MakeLinear(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeLinearDx(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeLinearDw(const KernelSpec& spec, Isa isa);

}  // namespace temper
