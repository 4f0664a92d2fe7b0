// The CPU backend: for each instruction the fastest kernel of this machine, else the reference one (reference/).
#pragma once

#include <functional>
#include <memory>

#include "backend/cpu/isa.h"
#include "device/communicator.h"
#include "device/kernel.h"

namespace temper {

struct CpuOptions {
  int threads = 1;        // team size; a kernel uses no more than its spec's `threads` either
  Isa isa = DetectIsa();  // kScalar: reference kernels only. REQUIRES: one of RunnableIsas()
  // Makes the exchange of numbers between a kernel and the ranks along these axes (Communicator::MakeExchange), when
  // the kernel is made. Without it instructions that need one are refused.
  std::function<Result<std::unique_ptr<Exchange>>(AxisSet)> exchange = nullptr;
};

// Whether products of bf16 read packed weights (tensor/element_layout.h) without a copy. Where they do not, the
// reference kernel reads them.
bool ReadsPackedWeights(Isa isa);

// The table is stateless after construction; a kernel does not need it after it is made.
std::unique_ptr<KernelTable> MakeCpuKernels(const CpuOptions& options);

}  // namespace temper
