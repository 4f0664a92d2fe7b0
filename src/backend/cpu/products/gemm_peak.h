// The rates of matrix products that this machine reaches now.
#pragma once

#include "backend/cpu/isa.h"
#include "tensor/dtype.h"

namespace temper {

// FLOP per second that the multipliers reach with `threads` threads: tiles of packed panels of random numbers in each
// core's second-level cache. The denominator of utilisation (MFU). Random, because processors slow down when bits
// change: zeros are multiplied up to a quarter faster. Takes some milliseconds, a tenth of a second where other work
// wants the processors, and 2 MiB per thread. Goes on for `seconds`, for a machine that is slower at times.
// On kScalar, which has no tiles: MeasureProductRate. REQUIRES: dtype kF32 or kBF16.
double MeasureGemmPeak(DType dtype, int threads, Isa isa, double seconds = 0);

// FLOP per second in several rounds: the best, and what half of them reached.
struct RateOfRounds {
  double best = 0, median = 0;
};
struct ProductSpeed {
  RateOfRounds products, peak;
};
// Whole products and the peak in turn, so that both meet the same other work, for about `seconds`. A median far below
// the best says that there is some. At least three rounds, whatever they take. REQUIRES: as MeasureGemmPeak; isa is not
// kScalar.
ProductSpeed MeasureProductSpeed(DType dtype, int threads, Isa isa, double seconds);

// FLOP per second of the fastest of several whole products: random operands in memory, packing included, [2048, 2048]
// by [2048, 2048] or, on slow machines, smaller, as this backend's linear computes them; on kScalar, as the reference
// kernel does. Takes at most about half a second and 50 MiB. REQUIRES: dtype kF32 or kBF16.
double MeasureProductRate(DType dtype, int threads, Isa isa);

}  // namespace temper
