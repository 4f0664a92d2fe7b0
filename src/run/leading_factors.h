// The leading singular vectors of a matrix, for adapters that begin as a part of their weight (PiSSA).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace temper {

// W ~ sum over r of values[r] * left[., r] * right[r, .].
struct LeadingFactors {
  std::vector<double> values;   // descending
  std::vector<float> left_MR;   // columns of norm 1
  std::vector<float> right_RN;  // rows of norm 1
  double residual = 0;          // the largest |W^T W v - s^2 v| of these, relative to the largest s^2
};

// Of `w` [m, n], the `r` largest. Signs are arbitrary. By subspace iteration with Chebyshev polynomials of W^T W (Zhou,
// Saad et al. 2006), in f32 with f64 between products, until the residual no longer shrinks: some 1e-7. Cost: some 20
// to 300 products of W with 2 r + 16 columns. REQUIRES: 1 <= r <= min(m, n).
LeadingFactors LeadingFactorsOf(std::span<const float> w, int64_t m, int64_t n, int64_t r, int threads);

}  // namespace temper
