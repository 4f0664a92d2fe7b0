// A readable scalar twin of every op: the oracle of every fast kernel, and the kernel of machines without AVX2.
// Arithmetic is in double and each result is rounded once, when stored; operands may be f32, bf16, f16 or f64, integers
// i32 or i64. (AdamW is the exception: its f32 arithmetic is prescribed to the bit; see adamw.cc.)
#pragma once

#include "device/kernel.h"

namespace temper {

// Lives as long as the program. Its kernels use one thread and no workspace; what scratch they need they own.
KernelTable& ReferenceKernels();

}  // namespace temper
