// Smoothed labels of linear_cross_entropy, one definition for kernels of processors and GPUs: with smoothing s a
// token's label is 1 - s at its target plus s / V at each of V words. Real: what a kernel computes gradients in.
//
// Device code calls constexpr functions.
#pragma once

#include <cstdint>

namespace temper {

template <class Real>
struct SmoothLabels {
  Real smoothing = 0;
  int64_t words = 0;  // of the whole vocabulary

  // A label of a word; the target has more.
  constexpr Real every() const { return smoothing / static_cast<Real>(words); }
  constexpr Real more() const { return 1 - smoothing; }

  // What of a row's logits is subtracted from the log of their sum of exponentials.
  constexpr double Expected(double target, double sum_of_logits) const {
    if (smoothing == 0) return target;
    const double part = smoothing;
    return (1 - part) * target + part * (sum_of_logits / static_cast<double>(words));
  }
};

}  // namespace temper
