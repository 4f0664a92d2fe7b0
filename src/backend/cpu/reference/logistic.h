// The logistic function, for the twins that compute with it.
#pragma once

#include <cmath>

namespace temper::reference {

inline double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace temper::reference
