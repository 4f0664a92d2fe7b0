// c * tanh(x / c), of scores and logits, for the twins. c = 0: no cap.
#pragma once

#include <cmath>

namespace temper::reference {

inline double Capped(double x, double cap) {
  return cap == 0 ? x : cap * std::tanh(x / cap);
}
// Of the capped value y.
inline double CapSlope(double y, double cap) {
  return cap == 0 ? 1 : (1 - y / cap) * (1 + y / cap);
}

}  // namespace temper::reference
