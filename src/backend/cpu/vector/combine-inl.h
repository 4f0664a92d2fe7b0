// Loops of combine and its backward, over the rows of one token.
#pragma once

#include "backend/cpu/vector/vector_kernels.h"

namespace temper {
namespace {

// y_D = sum over a of weight_A[a] (nullptr: 1) * rows[place_A[a]] + acc_D (may be nullptr, may be y_D).
template <class T>
void Combine(const T* y_PD, const int32_t* place_A, const float* weight_A, const T* acc_D, int64_t A, int64_t D,
             T* y_D) {
  Sweep(D, [=](int64_t i, auto lanes) {
    Floats sum = Zero();
    for (int64_t a = 0; a < A; ++a) {
      const Floats y = Load(y_PD + place_A[a] * D + i, lanes);
      sum = weight_A == nullptr ? sum + y : Fma(Set(weight_A[a]), y, sum);
    }
    if (acc_D != nullptr) sum += Load(acc_D + i, lanes);
    Store(y_D + i, sum, lanes);
  });
}

template <class T>
void CombineBackward(const T* d_y_D, const T* y_PD, const int32_t* place_A, const float* weight_A, int64_t A, int64_t D,
                     T* d_y_PD, float* d_weight_A) {
  for (int64_t a = 0; a < A; ++a) {
    const T* const y = y_PD + place_A[a] * D;
    T* const d_y = d_y_PD + place_A[a] * D;
    d_weight_A[a] = Total(D, [=](int64_t i, auto lanes) { return Load(d_y_D + i, lanes) * Load(y + i, lanes); });
    Sweep(D, [=](int64_t i, auto lanes) { Store(d_y + i, Set(weight_A[a]) * Load(d_y_D + i, lanes), lanes); });
  }
}

}  // namespace
}  // namespace temper
