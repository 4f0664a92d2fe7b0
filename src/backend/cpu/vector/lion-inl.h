// The loop of lion: operation by operation as backend/cpu/pointwise/lion_step.h prescribes.
#pragma once

namespace temper {
namespace {

template <class W>
void Lion(const LionScalars& s, const float* master, const float* gradient, const float* mean, float* new_master,
          float* new_mean, W* weight, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats g = Load(gradient + i, lanes) * Set(s.clip), m = Load(mean + i, lanes);
    const Floats d = Fma(Set(s.beta1), m, Set(s.one_minus_beta1) * g);
    const Floats sign = ZeroUnlessPositive(d, Set(1)) - ZeroUnlessPositive(Zero() - d, Set(1));
    const Floats w = Fma(Set(s.minus_rate), sign, Set(s.keep) * Load(master + i, lanes));
    Store(new_mean + i, Fma(Set(s.beta2), m, Set(s.one_minus_beta2) * g), lanes);
    Store(new_master + i, w, lanes);
    if (weight != nullptr) StoreExact(weight + i, w, lanes);
  });
}

}  // namespace
}  // namespace temper
