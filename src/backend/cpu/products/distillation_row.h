// One row of logits and the teacher's: how far the two distributions lie apart, and in the logits' place the gradient.
// Called by linear_cross_entropy.cc.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

// What of linear_distillation's attributes a row needs. Logits are cap * tanh(x / cap) of what lies in memory (0: as it
// lies there).
struct RowDistillation {
  float temperature = 1, beta = 0;
  float cap = 0, teacher_cap = 0;
};

// Returns the divergence (graph/ops/linear_cross_entropy.cc). `gradient`: logits_V becomes weight times the gradient,
// else it is left alone. T: float or bf16.
template <class T>
using DistillationRowFn = float (*)(T* logits_V, const T* teacher_V, int64_t V, const RowDistillation& of,
                                    bool gradient, float weight);

struct DistillationRowKernels {
  DistillationRowFn<float> f32;
  DistillationRowFn<bf16> bf16_;
};

extern const DistillationRowKernels kDistillationRowAvx2, kDistillationRowAvx512;

}  // namespace temper
