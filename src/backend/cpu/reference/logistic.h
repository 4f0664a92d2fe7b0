// The logistic function and its integral, for the twins that compute with it.
#pragma once

#include <algorithm>
#include <cmath>

namespace temper::reference {

inline double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

inline double Softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace temper::reference
