// A readable scalar twin of every op: the oracle of every fast kernel, and the kernel of machines without AVX2.
// Arithmetic is in double and each result is rounded once, when stored; operands may be f32, bf16, f16 or f64, integers
// i32 or i64. (Optimizers are the exception: their f32 arithmetic is prescribed to the bit; see adamw.cc, sgd.cc,
// lion.cc.)
#pragma once

#include "device/communicator.h"
#include "device/kernel.h"

namespace temper {

// Lives as long as the program. Its kernels use one thread and no workspace; they own the scratch they need.
KernelTable& ReferenceKernels();

// The kernel of an instruction that may exchange numbers with other ranks. kUnsupported for collectives, and if an
// instruction needs an exchange and has none.
Result<std::unique_ptr<Kernel>> MakeReferenceKernel(const KernelSpec& spec, std::unique_ptr<Exchange> exchange);

}  // namespace temper
