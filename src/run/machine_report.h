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
// FLOP/s that the CPU's multipliers reach now (backend/cpu/products/gemm_peak.h). Up to a tenth of a
// second.
double CpuPeak(DType dtype, int threads);
// A line each for f32 and bf16: the rate of whole products and the peak, measured in turn; and whether something else
// slows the machine down. About two seconds.
std::string DescribeCpuRates(int threads);

}  // namespace temper
