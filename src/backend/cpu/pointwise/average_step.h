// The moving average of a weight as torch.lerp makes it: share 1 gives the weight itself. In f32, to the bit on every
// instruction set; each line one IEEE operation:
//   d  = w - a
//   a' = fma(share, d, a)          or, where share >= 0.5, fma(share - 1, d, w)
#pragma once

namespace temper {

struct AverageScalars {
  float times;
  bool from_weight;  // share >= 0.5
};
inline AverageScalars PrepareAverage(double share) {
  return {.times = static_cast<float>(share < 0.5 ? share : share - 1), .from_weight = share >= 0.5};
}

}  // namespace temper
