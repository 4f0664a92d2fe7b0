// The rate of matrix products that this machine reaches now: the denominator of utilisation (MFU).
#pragma once

#include "backend/cpu/isa.h"
#include "tensor/dtype.h"

namespace temper {

// FLOP per second of the fastest of several whole products with `threads` threads: operands in memory, packing
// included, [2048, 2048] by [2048, 2048] or, on slow machines, smaller, as this backend's linear computes them. Not the
// rate of its inner loop alone, which no training step could reach. Takes at most about half a second and 50 MiB. On
// kScalar, which has no such kernels, the rate of the reference kernel. REQUIRES: dtype kF32 or kBF16.
double MeasureGemmPeak(DType dtype, int threads, Isa isa);

}  // namespace temper
