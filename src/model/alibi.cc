#include "model/alibi.h"

#include <bit>
#include <cmath>

namespace temper {

std::vector<double> AlibiSlopes(int64_t heads) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto slope = [](int64_t i, int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(of));
  };
  std::vector<double> slopes;
  for (int64_t i = 1; i <= below; ++i) slopes.push_back(slope(i, below));
  for (int64_t i = 1; std::ssize(slopes) < heads; i += 2) slopes.push_back(slope(i, 2 * below));
  return slopes;
}

}  // namespace temper
