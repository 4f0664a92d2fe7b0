// gelu(x) = x * Phi(x), exact by erf, or the tanh approximation ("gelu_new", "gelu_pytorch_tanh"), and its slope. For
// the twins of gelu and glu.
#pragma once

#include <cmath>

namespace temper::reference {

// tanh(z) with z = sqrt(2/pi) * (x + 0.044715 x^3): Hendrycks and Gimpel 2016.
inline constexpr double kGeluCubic = 0.044715;
inline const double kRootTwoOverPi = std::sqrt(2 / M_PI);

// (1 + tanh z) / 2 without the cancellation of 1 + tanh z for negative z.
inline double HalfOnePlusTanh(double z) {
  return 1 / (1 + std::exp(-2 * z));
}

inline double GeluOf(double x, bool tanh) {
  if (tanh) return x * HalfOnePlusTanh(kRootTwoOverPi * (x + kGeluCubic * x * x * x));
  return x / 2 * std::erfc(-x * M_SQRT1_2);  // 1 + erf(z) without its cancellation for z < 0
}

// erf: Phi(x) + x phi(x). tanh: (1 + th)/2 + x/2 (1 - th^2) z'(x).
inline double GeluSlope(double x, bool tanh) {
  if (!tanh) return std::erfc(-x * M_SQRT1_2) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  const double z = kRootTwoOverPi * (x + kGeluCubic * x * x * x);
  const double p = HalfOnePlusTanh(z), q = HalfOnePlusTanh(-z);  // 1 - tanh^2 = 4 p q
  return p + x * 2 * p * q * kRootTwoOverPi * (1 + 3 * kGeluCubic * x * x);
}

}  // namespace temper::reference
