// Describes this machine's hardware and its measured speed, for people.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace temper {

// A line per GPU, or one line with the reason why there is none.
std::string DescribeGpus();
// A line for each usable GPU: its measured speed, or why that cannot be measured.
std::string DescribeGpuRates();
// The CPU's vector instructions that kernels use: "avx512_bf16".
std::string InstructionSet();
// FLOP/s of matrix products on the CPU now (backend/cpu/gemm_peak.h); about half a second.
double CpuPeak(DType dtype, int threads);

}  // namespace temper
