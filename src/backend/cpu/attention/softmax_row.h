// One row of logits: its cross-entropy, and in its place the gradient. Called by linear_cross_entropy.cc.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"
#include "graph/ops/smooth_labels.h"
#include "tensor/dtype.h"

namespace temper {

// Logits that are exponentiated at a time: with their exponentials, 12 KiB of the L1 cache.
inline constexpr int64_t kSoftmaxPiece = 2048;

// The loss of a row of logits, which are cap * tanh(x / cap) of what lies in memory (`cap` 0: as it lies there).
// Gradients are those of x.
struct RowLoss {
  float cap = 0;
  SmoothLabels<float> labels = {};
};

// T: float or bf16. Returns log(sum of exp) - logit of the target, or as labels are smoothed. `gradient`: logits_V
// becomes weight * (softmax(logits) - labels), else it is left alone. A weight of 1 changes no bit. exp_V: scratch of V
// floats, rounded up to whole pieces, and one float for each piece. REQUIRES: 0 <= target < V.
template <class T>
using CrossEntropyRowFn = float (*)(T* logits_V, int64_t V, int64_t target, const RowLoss& of, bool gradient,
                                    float weight, float* exp_V);

// The same in two steps, for a row that is split over ranks; target -1 is not in this part. First the largest logit of
// this part (-infinity if V is 0), the sum of exp(logit - largest), the target's logit (-infinity if not here), and, if
// labels are smoothed, the sum of logits.
struct RowStatistics {
  float largest, sum, target, logits;
};
template <class T>
using RowStatisticsFn = RowStatistics (*)(const T* logits_V, int64_t V, int64_t target, const RowLoss& of);
// Then, with both of the whole row, logits_V becomes weight * (softmax(logits) - labels).
template <class T>
using SoftmaxGradientRowFn = void (*)(T* logits_V, int64_t V, int64_t target, const RowLoss& of, float weight,
                                      float largest, float sum);

// The largest logit as it lies in memory and the first word that has it; a row without one, of no word or of NaN:
// -infinity and -1.
struct RowTop {
  float logit;
  int64_t word;
};
template <class T>
using RowTopFn = RowTop (*)(const T* logits_V, int64_t V);

template <class T>
struct SoftmaxRowKernelsOf {
  CrossEntropyRowFn<T> cross_entropy;
  RowStatisticsFn<T> statistics;
  SoftmaxGradientRowFn<T> gradient;
  RowTopFn<T> top;
};

struct SoftmaxRowKernels {
  SoftmaxRowKernelsOf<float> f32;
  SoftmaxRowKernelsOf<bf16> bf16_;
};

extern const SoftmaxRowKernels kSoftmaxRowAvx2, kSoftmaxRowAvx512, kSoftmaxRowAvx512Bf16;

}  // namespace temper
