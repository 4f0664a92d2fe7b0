// Which instructions the CPU backend computes with their readable scalar twin (reference/), far slower than a vector
// kernel, and why.
#pragma once

#include <optional>
#include <string>

#include "backend/cpu/isa.h"
#include "device/kernel.h"

namespace temper {

// Why MakeCpuKernels has only the scalar twin for `spec` on `isa`; nullopt if it has a vector kernel. REQUIRES: `spec`
// has passed the op's shape rule, and is neither a move nor a collective.
std::optional<std::string> WhyScalar(const KernelSpec& spec, Isa isa);

}  // namespace temper
