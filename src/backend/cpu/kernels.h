// The makers of fast kernels, for the ops in kernel_list.inc: internal to backend/cpu. Each is a function of its
// kernels' file: `std::unique_ptr<Kernel> Make...(const KernelSpec& spec, Isa isa)`, with `std::unique_ptr<Exchange>&&
// exchange` where ranks exchange. `spec` has passed the op's shape rule, isa > kScalar. It returns nullptr if it has no
// kernel for these types on that instruction set; the reference kernel then runs. cpu_backend.cc alone declares them,
// by the list: others need not be compiled again when an op is added.
#pragma once

#include <memory>

#include "backend/cpu/isa.h"
#include "device/communicator.h"
#include "device/kernel.h"

namespace temper {

// Any op, by the table of those below. nullptr on kScalar, and for ops without a maker. `exchange`: with the ranks that
// share a vocabulary, for linear_cross_entropy with `axes`; taken if a kernel is returned.
std::unique_ptr<Kernel> MakeFastKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange = nullptr);

}  // namespace temper
