// Body of distillation_row.h, once per instruction set. Included after its vec_*.h.
#pragma once

#include "backend/cpu/products/distillation_row.h"

// clang-format off
#include "backend/cpu/vector/sweep-inl.h"
#include "backend/cpu/vector/exp-inl.h"
// clang-format on

namespace temper {
namespace {

constexpr int64_t kDistillationPiece = 2048;  // elements whose f32 sums are then added up in double

// log(x) within 3u, relative to max(|log x|, u), of a positive normal x: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172, by its series, short by s^10 / 11 < 3e-9.
TEMPER_VEC Floats Log(Floats x) {
  typedef int32_t Bits __attribute__((vector_size(sizeof(Floats))));
  constexpr int32_t kRootOfHalf = 0x3f3504f3;
  const Bits bits = (Bits)x, exponent = (bits - kRootOfHalf) >> 23;
  const Floats m = (Floats)(bits - (exponent << 23)), e = (Floats) __builtin_convertvector(exponent, Floats);
  const Floats s = (m - Set(1.0f)) / (m + Set(1.0f)), square = s * s;
  Floats p = Set(2.0f / 9);
  p = Fma(p, square, Set(2.0f / 7));
  p = Fma(p, square, Set(2.0f / 5));
  p = Fma(p, square, Set(2.0f / 3));
  const Floats log_m = Fma(p * square, s, s + s);
  // ln 2 in two parts; e times the upper one is exact.
  return Fma(e, Set(0x1.62e4p-1f), Fma(e, Set(0x1.7f7d1cp-20f), log_m));
}

// The logits of a row, divided by the temperature.
struct ScaledLogits {
  float cap, inverse_cap, inverse_temperature;
  ScaledLogits(float c, float temperature)
      : cap(c), inverse_cap(c == 0 ? 0 : 1 / c), inverse_temperature(1 / temperature) {}

  TEMPER_INLINE Floats Of(Floats x) const {
    if (cap != 0) x = Tanh(x * Set(inverse_cap)) * Set(cap);
    return x * Set(inverse_temperature);
  }
  // d_z, of what Of returns, to that of x.
  TEMPER_INLINE Floats Gradient(Floats d_z, Floats x) const {
    d_z = d_z * Set(inverse_temperature);
    if (cap == 0) return d_z;
    const Floats t = Tanh(x * Set(inverse_cap));
    return d_z * Fma(Zero() - t, t, Set(1.0f));
  }
};

// The logarithm of a row's sum of exponentials, as largest + log_sum.
struct RowOfScaled {
  float largest;
  double log_sum;
};
template <class T>
TEMPER_VEC RowOfScaled NormOf(const T* x_V, int64_t V, const ScaledLogits& scaled) {
  float largest = -__builtin_inff();
  Sweep(V, [&](int64_t i, auto lanes) {
    const Floats z = scaled.Of(Load(x_V + i, lanes));
    // Lanes beyond the row are 0 in a Part: they must not raise the maximum.
    if constexpr (std::is_same_v<decltype(lanes), Full>) {
      const float in_lanes = LargestLane(z);
      largest = largest > in_lanes ? largest : in_lanes;
    } else {
      for (int64_t k = i; k < V; ++k) {
        const float one = Sum(Keep(scaled.Of(Load(x_V + k, First(1))), First(1)));
        largest = largest > one ? largest : one;
      }
    }
  });
  double sum = 0;
  for (int64_t begin = 0; begin < V; begin += kDistillationPiece) {
    const int64_t n = V - begin < kDistillationPiece ? V - begin : kDistillationPiece;
    sum += Total(n, [&](int64_t i, auto lanes) {
      return Keep(Exp(scaled.Of(Load(x_V + begin + i, lanes)) - Set(largest)), lanes);
    });
  }
  return {largest, __builtin_log(sum)};
}

// Of a word: p and q, and the logarithms of both over that of the mixture m.
struct WordOfBoth {
  Floats p, q, log_p_m, log_q_m;
};

template <class T>
float DistillationRow(T* logits_V, const T* teacher_V, int64_t V, const RowDistillation& of, bool gradient,
                      float weight) {
  const ScaledLogits own(of.cap, of.temperature), others(of.teacher_cap, of.temperature);
  const RowOfScaled norm = NormOf(logits_V, V, own), norm_of_teacher = NormOf(teacher_V, V, others);
  const Floats shift = Set(norm.largest), shift_of_teacher = Set(norm_of_teacher.largest);
  const Floats log_sum = Set(static_cast<float>(norm.log_sum));
  const Floats log_sum_of_teacher = Set(static_cast<float>(norm_of_teacher.log_sum));
  const Floats between = Set(static_cast<float>(norm_of_teacher.log_sum - norm.log_sum));
  const float beta = of.beta;
  const auto word = [&](int64_t i, auto lanes) {
    const Floats a = own.Of(Load(logits_V + i, lanes)) - shift;
    const Floats b = others.Of(Load(teacher_V + i, lanes)) - shift_of_teacher;
    const Floats p = Exp(a - log_sum), q = Exp(b - log_sum_of_teacher), q_p = (b - a) - between;  // log(q / p)
    if (beta == 0) return WordOfBoth{p, q, Zero() - q_p, q_p};  // both over the other one
    if (beta == 1) return WordOfBoth{p, q, Zero() - q_p, Zero()};
    // m / p = (1 - beta) + beta q / p. Where a quotient leaves these bounds the smaller of the two is 0 in f32.
    const Floats bounded = AtLeast(-80.0f, AtMost(80.0f, q_p));
    const Floats m_p = Log(Fma(Exp(bounded), Set(beta), Set(1 - beta)));
    return WordOfBoth{p, q, Zero() - m_p, bounded - m_p};
  };
  // At beta 0 the divergence is that of q from p, at 1 that of p from q, without the factor of the other term.
  const Floats of_q = Set(beta == 0 ? 1 : beta == 1 ? 0 : beta), of_p = Set(beta == 0 ? 0 : beta == 1 ? 1 : 1 - beta);
  double loss = 0, mean = 0;  // mean: of log(p / m) under p
  for (int64_t begin = 0; begin < V; begin += kDistillationPiece) {
    const int64_t n = V - begin < kDistillationPiece ? V - begin : kDistillationPiece;
    Floats losses = Zero(), means = Zero();
    Sweep(n, [&](int64_t i, auto lanes) {
      const WordOfBoth w = word(begin + i, lanes);
      const Floats under_p = Keep(w.p * w.log_p_m, lanes);
      losses += Fma(of_p, under_p, Keep(of_q * w.q * w.log_q_m, lanes));
      means += under_p;
    });
    loss += Sum(losses);
    mean += Sum(means);
  }
  if (gradient) {
    const Floats k = Set(static_cast<float>(mean)), factor = Set(weight) * (beta == 0 ? Set(1.0f) : of_p);
    Sweep(V, [&](int64_t i, auto lanes) {
      const WordOfBoth w = word(i, lanes);
      const Floats d_z = beta == 0 ? w.p - w.q : w.p * (w.log_p_m - k);
      Store(logits_V + i, own.Gradient(d_z * factor, Load(logits_V + i, lanes)), lanes);
    });
  }
  return static_cast<float>(loss);
}

constexpr DistillationRowKernels kTable = {DistillationRow<float>, DistillationRow<bf16>};

}  // namespace
}  // namespace temper
