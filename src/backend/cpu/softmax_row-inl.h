// Body of softmax_row.h, once per instruction set. Included after its vec_*.h.
#pragma once

#include "backend/cpu/softmax_row.h"

// clang-format off
#include "backend/cpu/vector/sweep-inl.h"
#include "backend/cpu/vector/exp-inl.h"
// clang-format on

namespace temper {
namespace {

// How a row in T is read, exponentiated and written.
struct F32Row {
  using Element = float;
  static constexpr float kExponentFactor = 1;
  static TEMPER_INLINE Floats Exponential(Floats x) { return Exp(x); }
  template <class Lanes>
  static TEMPER_INLINE void Write(float* p, Floats x, Lanes lanes) {
    Store(p, x, lanes);
  }
};
struct BF16Row {
  using Element = bf16;
  static constexpr float kExponentFactor = kLog2E;
  static TEMPER_INLINE Floats Exponential(Floats x) { return RoughExp2(x); }
  template <class Lanes>
  static TEMPER_INLINE void Write(bf16* p, Floats x, Lanes lanes) {
    Store(p, x, lanes);
  }
};

template <class T>
TEMPER_VEC float LargestOf(const T* x, int64_t n) {
  Floats a = Set(-__builtin_inff()), b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = Larger(a, Load(x + i, Full{}));
    b = Larger(b, Load(x + i + kLanes, Full{}));
  }
  float largest = LargestLane(Larger(a, b));
  for (; i < n; ++i) {
    const float last = Sum(Load(x + i, First(1)));
    largest = largest > last ? largest : last;
  }
  return largest;
}

struct RowSum {
  float largest, sum;  // of exp(logit - largest)
};

// Online: the row is loaded from memory once. A piece of it, in the L1 cache, raises the maximum so far, and its
// exponentials are relative to that: `keep(i, exponentials, lanes)`, then `finish(piece, the maximum so far)`.
template <class Row, class Keeper, class Finisher>
TEMPER_VEC RowSum SumExponentials(const typename Row::Element* logits_V, int64_t V, const Keeper& keep,
                                  const Finisher& finish) {
  float largest = -__builtin_inff(), sum = 0;
  for (int64_t begin = 0, piece = 0; begin < V; begin += kSoftmaxPiece, ++piece) {
    const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
    const float in_piece = LargestOf(logits_V + begin, n), before = largest;
    // NaN carries over: into the sum, the loss and the gradient.
    largest = before > in_piece ? before : in_piece;
    const Floats factor = Set(Row::kExponentFactor), shift = Set(-largest * Row::kExponentFactor);
    const float piece_sum = Total(n, [&](int64_t i, auto lanes) {
      const Floats e = Keep(Row::Exponential(Fma(Load(logits_V + begin + i, lanes), factor, shift)), lanes);
      keep(begin + i, e, lanes);
      return e;
    });
    if (largest != before) sum *= Sum(Keep(Exp(Set(before - largest)), First(1)));
    sum += piece_sum;
    finish(piece, largest);
  }
  return {largest, sum};
}

// Keeps the exponentials of a row; a factor per piece corrects for maxima that came later.
template <class Row>
float CrossEntropyRow(typename Row::Element* logits_V, int64_t V, int64_t target, bool gradient, float weight,
                      float* exp_V) {
  const float target_logit = Sum(Load(logits_V + target, First(1)));
  float* const largest_at = exp_V + (V + kSoftmaxPiece - 1) / kSoftmaxPiece * kSoftmaxPiece;
  const auto [largest, sum] = SumExponentials<Row>(
      logits_V, V, [&](int64_t i, Floats e, auto lanes) { Store(exp_V + i, e, lanes); },
      [&](int64_t piece, float so_far) { largest_at[piece] = so_far; });
  if (gradient) {
    const float target_exp =
        exp_V[target] * Sum(Keep(Exp(Set(largest_at[target / kSoftmaxPiece] - largest)), First(1)));
    for (int64_t begin = 0, piece = 0; begin < V; begin += kSoftmaxPiece, ++piece) {
      const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
      const Floats factor = Exp(Set(largest_at[piece] - largest)) / Set(sum) * Set(weight);
      Sweep(n, [&](int64_t i, auto lanes) {
        Row::Write(logits_V + begin + i, Load(exp_V + begin + i, lanes) * factor, lanes);
      });
    }
    Row::Write(logits_V + target, Set((target_exp / sum - 1) * weight), First(1));
  }
  // The log is at least 0 and the rest too: nothing cancels.
  return static_cast<float>(__builtin_log(static_cast<double>(sum)) + (static_cast<double>(largest) - target_logit));
}

template <class Row>
void RowStatistics(const typename Row::Element* logits_V, int64_t V, float* largest, float* sum) {
  const RowSum row = SumExponentials<Row>(
      logits_V, V, [](int64_t, Floats, auto) {}, [](int64_t, float) {});
  *largest = row.largest;
  *sum = row.sum;
}

// Computes exponentials anew: those of a whole chunk would take twice the memory of its logits.
template <class Row>
void SoftmaxGradientRow(typename Row::Element* logits_V, int64_t V, int64_t target, float weight, float largest,
                        float sum) {
  const Floats factor = Set(Row::kExponentFactor), shift = Set(-largest * Row::kExponentFactor);
  const Floats scale = Set(1.0f) / Set(sum) * Set(weight);
  const auto weighted = [&](int64_t i, auto lanes) {
    return Row::Exponential(Fma(Load(logits_V + i, lanes), factor, shift)) * scale;
  };
  const Floats at_target = target < 0 ? Zero() : weighted(target, First(1)) - Set(weight);
  Sweep(V, [&](int64_t i, auto lanes) { Row::Write(logits_V + i, weighted(i, lanes), lanes); });
  if (target >= 0) Row::Write(logits_V + target, at_target, First(1));
}

template <class Row>
constexpr SoftmaxRowKernelsOf<typename Row::Element> kRowKernels = {CrossEntropyRow<Row>, RowStatistics<Row>,
                                                                    SoftmaxGradientRow<Row>};
constexpr SoftmaxRowKernels kTable = {kRowKernels<F32Row>, kRowKernels<BF16Row>};

}  // namespace
}  // namespace temper
