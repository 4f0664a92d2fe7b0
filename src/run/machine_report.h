// What this machine has and what it reaches, for people to read.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace temper {

// A line per GPU, or one that says why there is none.
std::string DescribeGpus();
// What each GPU that can be used reaches, measured, or why that cannot be done: a line each.
std::string DescribeGpuRates();
// The CPU's vector instructions that kernels use: "avx512_bf16".
std::string InstructionSet();
// FLOP/s of matrix products on the CPU now (backend/cpu/gemm_peak.h); about half a second.
double CpuPeak(DType dtype, int threads);

}  // namespace temper
