// For tests of attention's kernels: how far their f32 arithmetic may be from the scalar twin's, derived from the
// operands.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/kernel_twin.h"
#include "backend/cpu/reference/slopes.h"

namespace temper {

struct AttentionShape {
  int64_t tokens, heads, kv_heads, E;
  double scale;
  double softcap = 0;
  int64_t W = 0;    // of v and o; 0: E
  double sink = 0;  // the largest magnitude of a sink
  Attributes slopes = {};

  int64_t v_width() const { return W > 0 ? W : E; }
  double Capped(double score) const { return softcap == 0 ? score : softcap * std::tanh(score / softcap); }
};

// The f32 error of a scaled score: (E + 8) roundings of the sum of magnitudes, the largest of all. A cap, which is no
// steeper than 1, adds its own: tanh within 6u, and three roundings of its argument and of its product.
inline double ScoreError(const AttentionShape& c, const TestTensor& q, const TestTensor& k) {
  const auto longest = [&](const TestTensor& x) {
    double most = 0;
    for (int64_t r = 0; r < x.type().shape.elements() / c.E; ++r) {
      double square = 0;
      for (int64_t e = 0; e < c.E; ++e) square += x.Get(r * c.E + e) * x.Get(r * c.E + e);
      most = std::max(most, square);
    }
    return std::sqrt(most);
  };
  const double magnitude = longest(q) * longest(k) * c.scale;
  // A slope, what it gives, and its sum with the product.
  double grown = 0;
  for (int64_t h = 0; h < c.heads; ++h) {
    grown = std::max(grown, std::fabs(reference::Slopes(c.slopes).At(h, 0, c.tokens - 1, 0)));
  }
  return (static_cast<double>(c.E + 8) * magnitude + 4 * grown * c.scale + 10 * c.softcap) * UnitRoundoff(DType::kF32);
}

// Relative error of a probability: of the exponentials (2.4e-6 and roundings in bf16, 4 roundings in f32), of the score
// and of what is subtracted from it, and of the sum of n exponentials.
inline double ProbabilityError(const AttentionShape& c, const TestTensor& q, const TestTensor& k) {
  const double u = UnitRoundoff(DType::kF32);
  // A sink loses two roundings more on its way through the scale.
  return (q.type().dtype == DType::kBF16 ? 6e-6 : 12 * u) + 2.1 * ScoreError(c, q, k) + 4 * c.sink * u +
         (static_cast<double>(c.tokens) / 8 + 16) * u;
}

// The most that rounding can change d_q, d_k, d_v and d_sink by, from the operands (d_o, q, k, v, o, lse) in double.
// `seen(t)`: the keys that query t sees, [first, end).
struct BackwardBounds {
  std::vector<double> d_q, d_k, d_v, d_sink;
};
template <class Seen>
BackwardBounds BoundsOf(const AttentionShape& c, const TestTensors& in, const Seen& seen,
                        const TestTensor* sink = nullptr) {
  const int64_t H = c.heads, K = c.kv_heads, E = c.E, W = c.v_width(), T = c.tokens;
  const TestTensor &q = in[1], &key = in[2], &v = in[3];
  const DType dtype = q.type().dtype;
  const double scale = c.scale, u32 = UnitRoundoff(DType::kF32);
  const double p_error = ProbabilityError(c, q, key);
  const double rounding = dtype == DType::kBF16 ? 1.01 * UnitRoundoff(dtype) : 0;  // of p and d_s before their products
  const double sum_error = static_cast<double>(T * (H / K) + 8) * u32;
  const auto n = [](int64_t x) { return std::vector<double>(static_cast<size_t>(x)); };
  const reference::Slopes slopes(c.slopes);
  BackwardBounds b{n(T * H * E), n(T * K * E), n(T * K * W), n(H)};
  for (int64_t t = 0; t < T; ++t) {
    const auto [first, end] = seen(t);
    for (int64_t h = 0; h < H; ++h) {
      const int64_t at_q = (t * H + h) * E, at_o = (t * H + h) * W;
      double delta = 0, delta_size = 0;
      for (int64_t e = 0; e < W; ++e) {
        const double x = in[0].Get(at_o + e) * in[4].Get(at_o + e);
        delta += x;
        delta_size += std::fabs(x);
      }
      if (sink != nullptr) {
        const double p = std::exp(sink->Get(h) - in[5].Get(t * H + h));
        const double size = static_cast<double>(W + 8) * u32 * delta_size + 4 * u32 * std::fabs(delta);
        b.d_sink[static_cast<size_t>(h)] += p * size;
      }
      for (int64_t k = first; k < end; ++k) {
        const int64_t at_k = (k * K + h / (H / K)) * E, at_v = (k * K + h / (H / K)) * W;
        double score = slopes.At(h, k, t, first), d_p = 0, d_p_size = 0;
        for (int64_t e = 0; e < E; ++e) {
          score += q.Get(at_q + e) * key.Get(at_k + e);
        }
        for (int64_t e = 0; e < W; ++e) {
          d_p += in[0].Get(at_o + e) * v.Get(at_v + e);
          d_p_size += std::fabs(in[0].Get(at_o + e) * v.Get(at_v + e));
        }
        const double lse = in[5].Get(t * H + h), p = std::exp(c.Capped(scale * score) - lse);
        const double p_off = p_error + 4 * u32 * (std::fabs(lse) + std::fabs(scale * score)),
                     d_s = std::fabs(d_p - delta);
        // The slope of a cap, 1 - tanh^2, is off by twice what tanh is, and is at most 1.
        const double slope_off = c.softcap == 0 ? 0 : 24 * u32;
        const double d_s_off = p * (d_s * (p_off + rounding + sum_error + 4 * u32 + slope_off) +
                                    static_cast<double>(W + 8) * u32 * (d_p_size + delta_size));
        for (int64_t e = 0; e < E; ++e) {
          b.d_q[static_cast<size_t>(at_q + e)] += scale * d_s_off * std::fabs(key.Get(at_k + e));
          b.d_k[static_cast<size_t>(at_k + e)] += scale * d_s_off * std::fabs(q.Get(at_q + e));
        }
        for (int64_t e = 0; e < W; ++e) {
          b.d_v[static_cast<size_t>(at_v + e)] += p * (p_off + rounding + sum_error) * std::fabs(in[0].Get(at_o + e));
        }
      }
    }
  }
  return b;
}

}  // namespace temper
