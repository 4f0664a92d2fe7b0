// Rounds to one of the two neighbours in bf16: the one away from zero with the probability that makes the mean x.
#include <cmath>
#include <limits>

#include "backend/cpu/reference/draws.h"

namespace temper::reference {

Status StochasticRound(const Call& call) {
  StoreDrawn(call, [](double x, double u) {
    if (!std::isfinite(x)) return x;
    // 8 bits of precision, and the spacing of the smallest normal numbers below them.
    constexpr int kLeastExponent = std::numeric_limits<float>::min_exponent;
    int exponent = 0;
    std::frexp(x, &exponent);
    const double spacing = std::ldexp(1.0, std::max(exponent, kLeastExponent) - 8);
    const double toward_zero = std::trunc(x / spacing);
    const double odds = std::fabs(x / spacing - toward_zero), drawn = std::floor(u * 65536) / 65536;
    const double rounded = toward_zero + std::copysign(drawn + odds >= 1 ? 1 : 0, x);
    return rounded * spacing;
  });
  return OkStatus();
}

}  // namespace temper::reference
