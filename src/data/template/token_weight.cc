#include "data/template/token_weight.h"

#include <fmt/core.h>

#include <cmath>

namespace temper {

Result<TokenWeight> ToTokenWeight(double weight, const std::string& what) {
  constexpr double kLargest = WeightValue(kLargestWeight);
  if (!(weight >= 0 && weight <= kLargest)) {
    return Corrupt(fmt::format("{} is {}: a weight should be a number from 0 to {}", what, weight, kLargest));
  }
  return static_cast<TokenWeight>(std::lround(weight * kUnitWeight));
}

}  // namespace temper
