// The makers of fast kernels, for the ops in kernel_list.inc: internal to backend/cpu. `spec` has passed the op's shape
// rule, isa > kScalar. Each returns nullptr if it has no kernel for these types on that instruction set; the reference
// kernel then runs.
#pragma once

#include <memory>

#include "backend/cpu/isa.h"
#include "device/communicator.h"
#include "device/kernel.h"

namespace temper {

// Any op, by the table of those below. nullptr on kScalar, and for ops without a maker. `exchange`: with the ranks that
// share a vocabulary, for linear_cross_entropy with `axes`; taken if a kernel is returned.
std::unique_ptr<Kernel> MakeFastKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange = nullptr);

// REQUIRES: isa > kScalar.
#define TEMPER_CPU_KERNEL(op, maker) std::unique_ptr<Kernel> maker(const KernelSpec& spec, Isa isa);
#define TEMPER_CPU_EXCHANGING_KERNEL(op, maker) \
  std::unique_ptr<Kernel> maker(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange);
#include "backend/cpu/kernel_list.inc"

}  // namespace temper
