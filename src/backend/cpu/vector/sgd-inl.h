// The loop of sgd: operation by operation as backend/cpu/pointwise/sgd_step.h prescribes.
#pragma once

namespace temper {
namespace {

template <class W>
void Sgd(const SgdScalars& s, const float* master, const float* gradient, const float* momentum, float* new_master,
         float* new_momentum, W* weight, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats before = Load(master + i, lanes);
    const Floats g = Fma(Set(s.weight_decay), before, Load(gradient + i, lanes) * Set(s.clip));
    Floats ahead = g;
    if (momentum != nullptr) {
      const Floats b = Fma(Set(s.momentum), Load(momentum + i, lanes), g);
      Store(new_momentum + i, b, lanes);
      ahead = s.nesterov ? Fma(Set(s.momentum), b, g) : b;
    }
    const Floats w = Fma(Set(s.minus_rate), ahead, before);
    Store(new_master + i, w, lanes);
    if (weight != nullptr) StoreExact(weight + i, w, lanes);
  });
}

}  // namespace
}  // namespace temper
