// bitsandbytes' dynamic maps: the 256 numbers, in ascending order, that 8 bits stand for. 7 decades below 1; the first
// has one interval (of the map without negatives: two), each after it twice as many, at whose middles the numbers lie.
// With their negatives, if there are, 0 and 1: 256. Rounded where PyTorch rounds, which bitsandbytes makes them with.
// (Dettmers 2015, "8-Bit Approximations for Parallelism in Deep Learning"; bitsandbytes: create_dynamic_map.)
#pragma once

#include <array>
#include <cstddef>

namespace temper {

constexpr std::array<float, 256> MakeDynamicMap(bool negatives) {
  constexpr float kDecades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  const size_t zero = negatives ? 127 : 0;
  std::array<float, 256> numbers{};
  numbers[255] = 1;
  size_t n = 1;  // from 0
  for (int decade = 0; decade < 7; ++decade) {
    const int intervals = (negatives ? 1 : 2) << decade;
    const float first = 0.1f, step = (1 - first) / static_cast<float>(intervals);
    const auto border = [&](int i) {  // of a sequence from 0.1 to 1, made from both ends with one rounding
      return 2 * i < intervals ? static_cast<float>(static_cast<double>(first) + static_cast<double>(step) * i)
                               : static_cast<float>(1 - static_cast<double>(step) * (intervals - i));
    };
    for (int i = 0; i < intervals; ++i, ++n) {
      const float middle = (border(i) + border(i + 1)) / 2 * kDecades[decade];
      numbers[zero + n] = middle;
      if (negatives) numbers[zero - n] = -middle;
    }
  }
  return numbers;
}
inline constexpr std::array<float, 256> kSignedDynamicMap = MakeDynamicMap(true);
inline constexpr std::array<float, 256> kUnsignedDynamicMap = MakeDynamicMap(false);

}  // namespace temper
