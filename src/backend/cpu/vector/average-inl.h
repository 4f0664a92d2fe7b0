// The loop of average: operation by operation as backend/cpu/pointwise/average_step.h prescribes.
#pragma once

namespace temper {
namespace {

inline void Average(const AverageScalars& s, const float* average, const float* weight, float* new_average, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(average + i, lanes), w = Load(weight + i, lanes);
    Store(new_average + i, Fma(Set(s.times), w - a, s.from_weight ? w : a), lanes);
  });
}

}  // namespace
}  // namespace temper
