// The loop of adamw: operation by operation as backend/cpu/pointwise/adamw_step.h prescribes.
#pragma once

namespace temper {
namespace {

template <class W>
void Adamw(const AdamwScalars& s, const float* master, const float* gradient, const float* m, const float* v,
           float* new_master, float* new_m, float* new_v, W* weight, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats g = Load(gradient + i, lanes) * Set(s.clip);
    const Floats first = Fma(Set(s.beta1), Load(m + i, lanes), Set(s.one_minus_beta1) * g);
    const Floats second = Fma(Set(s.beta2), Load(v + i, lanes), Set(s.one_minus_beta2) * (g * g));
    const Floats divisor = Sqrt(second) / Set(s.root_correction2) + Set(s.eps);
    const Floats w = Fma(Set(s.minus_step), first / divisor, Set(s.decay) * Load(master + i, lanes));
    Store(new_m + i, first, lanes);
    Store(new_v + i, second, lanes);
    Store(new_master + i, w, lanes);
    if (weight != nullptr) StoreExact(weight + i, w, lanes);
  });
}

}  // namespace
}  // namespace temper
