// Body of softmax_row.h, once per instruction set. Included after its vec_*.h.
#pragma once

#include "backend/cpu/attention/softmax_row.h"

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

template <class T>
RowTop TopOfRow(const T* logits_V, int64_t V) {
  float largest = -__builtin_inff();
  int64_t piece = -1;  // the first one that has it
  for (int64_t begin = 0; begin < V; begin += kSoftmaxPiece) {
    const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
    const float in_piece = LargestOf(logits_V + begin, n);
    if (!(in_piece > largest)) continue;
    largest = in_piece;
    piece = begin;
  }
  for (int64_t v = piece; piece >= 0 && v < V; ++v) {
    if (ToFloat(logits_V[v]) == largest) return {largest, v};
  }
  return {largest, -1};
}

// The logits of a row: as they lie in memory, or capped.
template <bool kCapped>
struct Logits {
  static constexpr bool kIsCapped = kCapped;
  float cap, inverse;
  explicit Logits(float c) : cap(c), inverse(kCapped ? 1 / c : 0) {}

  TEMPER_INLINE Floats Of(Floats x) const {
    if constexpr (kCapped) return Tanh(x * Set(inverse)) * Set(cap);
    return x;
  }
  // d_logit, of the capped logit, to that of x.
  TEMPER_INLINE Floats Gradient(Floats d_logit, Floats x) const {
    if constexpr (kCapped) {
      const Floats t = Tanh(x * Set(inverse));
      return d_logit * Fma(Zero() - t, t, Set(1.0f));
    }
    return d_logit;
  }
};

TEMPER_VEC float Lane0(Floats x) {
  return Sum(Keep(x, First(1)));
}

struct RowSum {
  float largest, sum;  // of exp(logit - largest)
};

// Online: the row is loaded from memory once. A piece of it, in the L1 cache, raises the maximum so far, and its
// exponentials are relative to that: `keep(i, exponentials, lanes)`, then `finish(piece, the maximum so far)`.
template <class Row, class Logits, class Keeper, class Finisher>
TEMPER_VEC RowSum SumExponentials(const typename Row::Element* logits_V, int64_t V, const Logits& logits,
                                  const Keeper& keep, const Finisher& finish) {
  float largest = -__builtin_inff(), sum = 0;
  for (int64_t begin = 0, piece = 0; begin < V; begin += kSoftmaxPiece, ++piece) {
    const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
    float in_piece = LargestOf(logits_V + begin, n);
    const float before = largest;
    if constexpr (Logits::kIsCapped) in_piece = Lane0(logits.Of(Set(in_piece)));
    // NaN carries over: into the sum, the loss and the gradient.
    largest = before > in_piece ? before : in_piece;
    const Floats factor = Set(Row::kExponentFactor), shift = Set(-largest * Row::kExponentFactor);
    const float piece_sum = Total(n, [&](int64_t i, auto lanes) {
      const Floats e = Keep(Row::Exponential(Fma(logits.Of(Load(logits_V + begin + i, lanes)), factor, shift)), lanes);
      keep(begin + i, e, lanes);
      return e;
    });
    if (largest != before) sum *= Lane0(Exp(Set(before - largest)));
    sum += piece_sum;
    finish(piece, largest);
  }
  return {largest, sum};
}

// Pieces are added up in double: the mean of many words is small beside their sum.
template <class T, class Logits>
TEMPER_VEC double SumLogits(const T* logits_V, int64_t V, const Logits& logits) {
  double sum = 0;
  for (int64_t begin = 0; begin < V; begin += kSoftmaxPiece) {
    const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
    sum += Total(n, [&](int64_t i, auto lanes) { return Keep(logits.Of(Load(logits_V + begin + i, lanes)), lanes); });
  }
  return sum;
}

// Keeps the exponentials of a row; a factor per piece corrects for maxima that came later.
template <class Row, bool kCapped>
float CrossEntropyRowOf(typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of, bool gradient,
                        float weight, float* exp_V) {
  const Logits<kCapped> logits(of.cap);
  const Floats target_x = Load(logits_V + target, First(1));
  const float target_logit = Lane0(logits.Of(target_x));
  float* const largest_at = exp_V + (V + kSoftmaxPiece - 1) / kSoftmaxPiece * kSoftmaxPiece;
  const auto [largest, sum] = SumExponentials<Row>(
      logits_V, V, logits, [&](int64_t i, Floats e, auto lanes) { Store(exp_V + i, e, lanes); },
      [&](int64_t piece, float so_far) { largest_at[piece] = so_far; });
  // Before gradients overwrite them.
  const double sum_of_logits = of.labels.smoothing == 0 ? 0 : SumLogits(logits_V, V, logits);
  if (gradient) {
    const Floats every = Set(of.labels.every() * weight);
    const float target_exp = exp_V[target] * Lane0(Exp(Set(largest_at[target / kSoftmaxPiece] - largest)));
    for (int64_t begin = 0, piece = 0; begin < V; begin += kSoftmaxPiece, ++piece) {
      const int64_t n = V - begin < kSoftmaxPiece ? V - begin : kSoftmaxPiece;
      const Floats factor = Exp(Set(largest_at[piece] - largest)) / Set(sum) * Set(weight);
      Sweep(n, [&](int64_t i, auto lanes) {
        typename Row::Element* const at = logits_V + begin + i;
        const Floats d_logit = Load(exp_V + begin + i, lanes) * factor - every;
        if constexpr (kCapped) {
          Row::Write(at, logits.Gradient(d_logit, Load(at, lanes)), lanes);
        } else {
          Row::Write(at, d_logit, lanes);
        }
      });
    }
    Row::Write(logits_V + target,
               logits.Gradient(Set((target_exp / sum - of.labels.every() - of.labels.more()) * weight), target_x),
               First(1));
  }
  // The log is at least 0 and the rest too: nothing cancels.
  const double expected = of.labels.Expected(target_logit, sum_of_logits);
  return static_cast<float>(__builtin_log(static_cast<double>(sum)) + (static_cast<double>(largest) - expected));
}

template <class Row>
float CrossEntropyRow(typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of, bool gradient,
                      float weight, float* exp_V) {
  return of.cap == 0 ? CrossEntropyRowOf<Row, false>(logits_V, V, target, of, gradient, weight, exp_V)
                     : CrossEntropyRowOf<Row, true>(logits_V, V, target, of, gradient, weight, exp_V);
}

template <class Row, bool kCapped>
RowStatistics RowStatisticsOf(const typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of) {
  const Logits<kCapped> logits(of.cap);
  const RowSum row = SumExponentials<Row>(
      logits_V, V, logits, [](int64_t, Floats, auto) {}, [](int64_t, float) {});
  const float at_target = target < 0 ? -__builtin_inff() : Lane0(logits.Of(Load(logits_V + target, First(1))));
  const double sum_of_logits = of.labels.smoothing == 0 ? 0 : SumLogits(logits_V, V, logits);
  return {row.largest, row.sum, at_target, static_cast<float>(sum_of_logits)};
}
template <class Row>
RowStatistics StatisticsOfRow(const typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of) {
  return of.cap == 0 ? RowStatisticsOf<Row, false>(logits_V, V, target, of)
                     : RowStatisticsOf<Row, true>(logits_V, V, target, of);
}

// Computes exponentials anew: those of a whole chunk would take twice the memory of its logits.
template <class Row, bool kCapped>
void SoftmaxGradientRowOf(typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of, float weight,
                          float largest, float sum) {
  const Logits<kCapped> logits(of.cap);
  const Floats factor = Set(Row::kExponentFactor), shift = Set(-largest * Row::kExponentFactor);
  const Floats scale = Set(1.0f) / Set(sum) * Set(weight), every = Set(of.labels.every() * weight);
  const auto weighted = [&](int64_t i, auto lanes) {
    return Row::Exponential(Fma(logits.Of(Load(logits_V + i, lanes)), factor, shift)) * scale - every;
  };
  const auto gradient = [&](int64_t i, Floats d_logit, auto lanes) {
    return logits.Gradient(d_logit, Load(logits_V + i, lanes));
  };
  const Floats at_target =
      target < 0 ? Zero() : gradient(target, weighted(target, First(1)) - Set(of.labels.more() * weight), First(1));
  Sweep(V, [&](int64_t i, auto lanes) { Row::Write(logits_V + i, gradient(i, weighted(i, lanes), lanes), lanes); });
  if (target >= 0) Row::Write(logits_V + target, at_target, First(1));
}
template <class Row>
void SoftmaxGradientRow(typename Row::Element* logits_V, int64_t V, int64_t target, const RowLoss& of, float weight,
                        float largest, float sum) {
  return of.cap == 0 ? SoftmaxGradientRowOf<Row, false>(logits_V, V, target, of, weight, largest, sum)
                     : SoftmaxGradientRowOf<Row, true>(logits_V, V, target, of, weight, largest, sum);
}

template <class Row>
constexpr SoftmaxRowKernelsOf<typename Row::Element> kRowKernels = {
    CrossEntropyRow<Row>, StatisticsOfRow<Row>, SoftmaxGradientRow<Row>, TopOfRow<typename Row::Element>};
constexpr SoftmaxRowKernels kTable = {kRowKernels<F32Row>, kRowKernels<BF16Row>};

}  // namespace
}  // namespace temper
