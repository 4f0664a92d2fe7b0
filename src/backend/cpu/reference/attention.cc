// Scaled dot-product attention: causal, grouped-query, isolated by document, optionally in a sliding window.
// Token i sees tokens [max(document_start[i], i - window + 1 if window > 0), i] and itself is the last of them.
// Scores grow with ALiBi's slopes, are scaled, and capped where there is a softcap. lse[i, h] is the natural log of the
// sum of exp of those that i sees, and of its head's sink, a score without a value, where there is one. last_T: the
// last token that i sees.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/slopes.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/attention_heads.h"

namespace temper::reference {
namespace {

struct Heads {
  int64_t H, K, E, W, group, window;  // group = H / K query heads share a key head; W: of v and o
  double scale, cap;
  AttentionOptions options;
  Slopes slopes;

  // `backward`: of the operands of the gradient.
  Heads(const Call& call, bool backward)
      : H(call.attributes().Int("heads")),
        K(call.attributes().Int("kv_heads")),
        E(call.In(backward ? 1 : 0).columns() / H),
        W(call.In(backward ? 3 : 2).columns() / K),
        group(H / K),
        window(call.attributes().IntOr("window", 0)),
        scale(call.attributes().Double("scale")),
        cap(call.attributes().DoubleOr("softcap", 0)),
        options(AttentionOptionsOf(call.attributes(), backward ? 7 : 4)),
        slopes(call.attributes()) {}

  int64_t QueryAt(int64_t t, int64_t h) const { return (t * H + h) * E; }
  int64_t KeyAt(int64_t t, int64_t h) const { return (t * K + h / group) * E; }
  int64_t ValueAt(int64_t t, int64_t h) const { return (t * K + h / group) * W; }
  int64_t OutAt(int64_t t, int64_t h) const { return (t * H + h) * W; }
  int64_t FirstSeen(int64_t t, int64_t document_start) const {
    return window > 0 ? std::max(document_start, t - window + 1) : document_start;
  }
  // Never outside of the tokens, whatever the data says.
  int64_t LastSeen(const Call& call, int64_t t, int64_t tokens) const {
    return options.last < 0 ? t : std::clamp<int64_t>(call.In(options.last).Int(t), t, tokens - 1);
  }
};

}  // namespace

Status Attention(const Call& call) {
  const Operand q = call.In(0), k = call.In(1), v = call.In(2), document_start_T = call.In(3);
  const Operand o = call.Out(0), lse_TH = call.Out(1);
  const Heads heads(call, false);
  const int64_t T = q.rows(), E = heads.E, W = heads.W;
  double* score = call.Scratch(T);
  for (int64_t t = 0; t < T; ++t) {
    const int64_t begin = heads.FirstSeen(t, document_start_T.Int(t)), last = heads.LastSeen(call, t, T);
    for (int64_t h = 0; h < heads.H; ++h) {
      const double sink = heads.options.sink < 0 ? -INFINITY : call.In(heads.options.sink)[h];
      double max = sink;
      for (int64_t s = begin; s <= last; ++s) {
        const double product = Dot(q, heads.QueryAt(t, h), k, heads.KeyAt(s, h), E) + heads.slopes.At(h, s, t, begin);
        score[s] = Capped(heads.scale * product, heads.cap);
        max = std::max(max, score[s]);
      }
      double sum = std::exp(sink - max);
      for (int64_t s = begin; s <= last; ++s) sum += std::exp(score[s] - max);
      const double lse = max + std::log(sum);
      for (int64_t e = 0; e < W; ++e) {
        double out = 0;
        for (int64_t s = begin; s <= last; ++s) out += std::exp(score[s] - lse) * v[heads.ValueAt(s, h) + e];
        o.Store(heads.OutAt(t, h) + e, out);
      }
      lse_TH.Store(t * heads.H + h, lse);
    }
  }
  return OkStatus();
}

// With p = exp(score - lse), d_p = d_o . v, delta = d_o . o:  d_s = p * (d_p - delta) * the cap's slope,
// d_q = scale * sum over keys of d_s * k,  d_k = scale * sum over queries of d_s * q,  d_v = sum over queries of p *
// d_o,  d_sink = -sum over queries of exp(sink - lse) * delta: its d_p is zero.
Status AttentionBackward(const Call& call) {
  const Operand d_o = call.In(0), q = call.In(1), k = call.In(2), v = call.In(3), o = call.In(4), lse_TH = call.In(5);
  const Operand document_start_T = call.In(6), d_q = call.Out(0), d_k = call.Out(1), d_v = call.Out(2);
  const Heads heads(call, true);
  const int64_t T = q.rows(), E = heads.E, W = heads.W, H = heads.H, K = heads.K;
  const int64_t total = T * (H * E + K * E + K * W) + H;
  double* const sums = call.Scratch(total);
  double *const sum_q = sums, *const sum_k = sum_q + T * H * E, *const sum_v = sum_k + T * K * E;
  double* const sum_sink = sum_v + T * K * W;
  std::fill(sums, sums + total, 0.0);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t h = 0; h < heads.H; ++h) {
      const int64_t at_q = heads.QueryAt(t, h), at_o = heads.OutAt(t, h);
      const double delta = Dot(d_o, at_o, o, at_o, W), lse = lse_TH[t * H + h];
      if (heads.options.sink >= 0) sum_sink[h] -= std::exp(call.In(heads.options.sink)[h] - lse) * delta;
      const int64_t begin = heads.FirstSeen(t, document_start_T.Int(t)), last = heads.LastSeen(call, t, T);
      for (int64_t s = begin; s <= last; ++s) {
        const int64_t at_k = heads.KeyAt(s, h), at_v = heads.ValueAt(s, h);
        const double product = Dot(q, at_q, k, at_k, E) + heads.slopes.At(h, s, t, begin);
        const double score = Capped(heads.scale * product, heads.cap);
        const double p = std::exp(score - lse);
        const double d_s = p * (Dot(d_o, at_o, v, at_v, W) - delta) * CapSlope(score, heads.cap);
        for (int64_t e = 0; e < E; ++e) {
          sum_q[at_q + e] += heads.scale * d_s * k[at_k + e];
          sum_k[at_k + e] += heads.scale * d_s * q[at_q + e];
        }
        for (int64_t e = 0; e < W; ++e) sum_v[at_v + e] += p * d_o[at_o + e];
      }
    }
  }
  for (int64_t i = 0; i < T * H * E; ++i) d_q.Store(i, sum_q[i]);
  for (int64_t i = 0; i < T * K * E; ++i) d_k.Store(i, sum_k[i]);
  for (int64_t i = 0; i < T * K * W; ++i) d_v.Store(i, sum_v[i]);
  for (int64_t h = 0; heads.options.sink >= 0 && h < H; ++h) call.Out(3).Store(h, sum_sink[h]);
  return OkStatus();
}

}  // namespace temper::reference
