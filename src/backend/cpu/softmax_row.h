// One row of logits: its cross-entropy, and in its place the gradient. Called by linear_cross_entropy.cc.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"
#include "tensor/dtype.h"

namespace temper {

// Logits that are exponentiated at a time: with their exponentials, 12 KiB of the L1 cache.
inline constexpr int64_t kSoftmaxPiece = 2048;

// T: float or bf16. Returns log(sum of exp) - logit of the target. `gradient`: logits_V becomes weight *
// (softmax(logits) - onehot(target)), else it is left alone. A weight of 1 changes no bit. exp_V: scratch of V floats,
// rounded up to whole pieces, and one float for each piece. REQUIRES: 0 <= target < V.
// `cap`: the logits are cap * tanh(logits_V / cap), and the gradient is that of logits_V; 0: no cap.
template <class T>
using CrossEntropyRowFn = float (*)(T* logits_V, int64_t V, int64_t target, float cap, bool gradient, float weight,
                                    float* exp_V);

// The same in two steps, for a row that is split over ranks; target -1 is not in this part. First the largest logit of
// this part (-infinity if V is 0), the sum of exp(logit - largest), and the target's logit (-infinity if not here).
struct RowStatistics {
  float largest, sum, target;
};
template <class T>
using RowStatisticsFn = RowStatistics (*)(const T* logits_V, int64_t V, int64_t target, float cap);
// Then, with both of the whole row, logits_V becomes weight * (softmax(logits) - onehot(target)).
template <class T>
using SoftmaxGradientRowFn = void (*)(T* logits_V, int64_t V, int64_t target, float cap, float weight, float largest,
                                      float sum);

template <class T>
struct SoftmaxRowKernelsOf {
  CrossEntropyRowFn<T> cross_entropy;
  RowStatisticsFn<T> statistics;
  SoftmaxGradientRowFn<T> gradient;
};

struct SoftmaxRowKernels {
  SoftmaxRowKernelsOf<float> f32;
  SoftmaxRowKernelsOf<bf16> bf16_;
};

extern const SoftmaxRowKernels kSoftmaxRowAvx2, kSoftmaxRowAvx512, kSoftmaxRowAvx512Bf16;

}  // namespace temper
