// Attention of one rank's queries to the keys of one rank of a context-parallel group: what the op means is told in
// graph/ops/attention_step.cc. The query at place p sees keys at places [max(document_start, p - window + 1), p].
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/context_attributes.h"

namespace temper::reference {
namespace {

struct Step {
  int64_t H, K, E, group, window;  // group = H / K query heads share a key head
  double scale, cap;
  ContextPart queries, keys;

  Step(const Attributes& a, const Operand& q)
      : H(a.Int("heads")),
        K(a.Int("kv_heads")),
        E(q.columns() / H),
        group(H / K),
        window(a.IntOr("window", 0)),
        scale(a.Double("scale")),
        cap(a.DoubleOr("softcap", 0)),
        queries(ContextPartOf(a, "row")),
        keys(ContextPartOf(a, "row", "origin")) {}

  int64_t QueryAt(int64_t t, int64_t h) const { return (t * H + h) * E; }
  int64_t KeyAt(int64_t t, int64_t h) const { return (t * K + h / group) * E; }
  // Local keys [first, end) that query t sees.
  int64_t FirstKey(int64_t t, int64_t document_start) const {
    const int64_t place = queries.PlaceOf(t);
    return keys.LocalFrom(window > 0 ? std::max(document_start, place - window + 1) : document_start);
  }
  int64_t EndKey(int64_t t) const { return keys.LocalFrom(queries.PlaceOf(t) + 1); }
};

}  // namespace

Status AttentionStep(const Call& call) {
  const Operand q = call.In(0), k = call.In(1), v = call.In(2), document_start_T = call.In(3);
  const Operand o = call.Out(0), lse_TH = call.Out(1);
  const Step step(call.attributes(), q);
  const bool acc = call.attributes().Flag("acc");
  const int64_t T = q.rows(), E = step.E;
  double* const score = call.Scratch(T);
  for (int64_t t = 0; t < T; ++t) {
    const int64_t begin = step.FirstKey(t, document_start_T.Int(t)), end = step.EndKey(t);
    for (int64_t h = 0; h < step.H; ++h) {
      const double lse_before = acc ? call.In(5)[t * step.H + h] : -INFINITY;
      double max = lse_before;
      for (int64_t s = begin; s < end; ++s) {
        score[s] = Capped(step.scale * Dot(q, step.QueryAt(t, h), k, step.KeyAt(s, h), E), step.cap);
        max = std::max(max, score[s]);
      }
      double sum = std::exp(lse_before - max);
      for (int64_t s = begin; s < end; ++s) sum += std::exp(score[s] - max);
      const double lse = max + std::log(sum);
      for (int64_t e = 0; e < E; ++e) {
        const int64_t at = step.QueryAt(t, h) + e;
        double out = acc ? std::exp(lse_before - lse) * call.In(4)[at] : 0;
        for (int64_t s = begin; s < end; ++s) out += std::exp(score[s] - lse) * v[step.KeyAt(s, h) + e];
        o.Store(at, out);
      }
      lse_TH.Store(t * step.H + h, lse);
    }
  }
  return OkStatus();
}

// As AttentionBackward, of these keys alone.
Status AttentionStepBackward(const Call& call) {
  const Operand d_o = call.In(0), q = call.In(1), k = call.In(2), v = call.In(3), o = call.In(4), lse_TH = call.In(5);
  const Operand document_start_T = call.In(6), d_q = call.Out(0), d_k = call.Out(1), d_v = call.Out(2);
  const Step step(call.attributes(), q);
  const int64_t T = q.rows(), E = step.E;
  double* const sums = call.Scratch((step.H + 2 * step.K) * T * E);
  double *const sum_q = sums, *const sum_k = sum_q + T * step.H * E, *const sum_v = sum_k + T * step.K * E;
  std::fill(sums, sums + (step.H + 2 * step.K) * T * E, 0.0);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t h = 0; h < step.H; ++h) {
      const int64_t at_q = step.QueryAt(t, h);
      const double delta = Dot(d_o, at_q, o, at_q, E);
      for (int64_t s = step.FirstKey(t, document_start_T.Int(t)); s < step.EndKey(t); ++s) {
        const int64_t at_k = step.KeyAt(s, h);
        const double score = Capped(step.scale * Dot(q, at_q, k, at_k, E), step.cap);
        const double p = std::exp(score - lse_TH[t * step.H + h]);
        const double d_s = p * (Dot(d_o, at_q, v, at_k, E) - delta) * CapSlope(score, step.cap);
        for (int64_t e = 0; e < E; ++e) {
          sum_q[at_q + e] += step.scale * d_s * k[at_k + e];
          sum_k[at_k + e] += step.scale * d_s * q[at_q + e];
          sum_v[at_k + e] += p * d_o[at_q + e];
        }
      }
    }
  }
  const bool acc = call.attributes().Flag("acc");
  for (int64_t i = 0; i < T * step.H * E; ++i) d_q.Store(i, sum_q[i] + (acc ? call.In(7)[i] : 0));
  for (int64_t i = 0; i < T * step.K * E; ++i) d_k.Store(i, sum_k[i]);
  for (int64_t i = 0; i < T * step.K * E; ++i) d_v.Store(i, sum_v[i]);
  return OkStatus();
}

}  // namespace temper::reference
