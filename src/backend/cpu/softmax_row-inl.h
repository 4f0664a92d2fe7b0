// Body of softmax_row.h, once per instruction set. Included after its vec_*.h.
#pragma once

#include "backend/cpu/softmax_row.h"

// clang-format off
#include "backend/cpu/vector/sweep-inl.h"
#include "backend/cpu/vector/exp-inl.h"
// clang-format on

namespace temper {
namespace {

// NaN in b stays.
TEMPER_VEC Floats Larger(Floats a, Floats b) {
  return a > b ? a : b;
}

TEMPER_VEC float LargestLane(Floats x) {
  float lane[kLanes];
  Store(lane, x, Full{});
  float largest = lane[0];
  for (int64_t i = 1; i < kLanes; ++i) largest = largest > lane[i] ? largest : lane[i];
  return largest;
}

template <class T>
TEMPER_VEC float LargestOf(const T* x, int64_t n) {
  Floats a = Set(-__builtin_inff()), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a = Larger(a, Load(x + i, Full{}));
    b = Larger(b, Load(x + i + kLanes, Full{}));
    c = Larger(c, Load(x + i + 2 * kLanes, Full{}));
    d = Larger(d, Load(x + i + 3 * kLanes, Full{}));
  }
  float largest = LargestLane(Larger(Larger(a, b), Larger(c, d)));
  for (; i < n; ++i) {
    float lane[kLanes];
    Store(lane, Load(x + i, First(1)), Full{});
    largest = largest > lane[0] ? largest : lane[0];
  }
  return largest;
}

template <class T>
float CrossEntropyRow(T* logits_V, int64_t V, int64_t target, bool gradient, float* exp_V) {
  float lane[kLanes];
  Store(lane, Load(logits_V + target, First(1)), Full{});
  const float target_logit = lane[0], largest = LargestOf(logits_V, V);
  const float sum = Total(V, [&](int64_t i, auto lanes) {
    const Floats e = Keep(Exp(Load(logits_V + i, lanes) - Set(largest)), lanes);
    Store(exp_V + i, e, lanes);
    return e;
  });
  if (gradient) {
    const Floats factor = Set(1 / sum);
    const float target_exp = exp_V[target];
    Sweep(V, [&](int64_t i, auto lanes) { Store(logits_V + i, Load(exp_V + i, lanes) * factor, lanes); });
    Store(logits_V + target, Set(target_exp / sum - 1), First(1));
  }
  // log is at least 0 and the rest is at most: their sum cancels only where the loss is small beside the logits.
  return static_cast<float>(__builtin_log(static_cast<double>(sum)) + (static_cast<double>(largest) - target_logit));
}

constexpr SoftmaxRowKernels kTable = {CrossEntropyRow<float>, CrossEntropyRow<bf16>};

}  // namespace
}  // namespace temper
