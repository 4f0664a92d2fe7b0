// Attention of S new tokens over a cache that holds `length` earlier ones. The new keys and values become cache rows
// length .. length + S; then new token i attends to rows [max(0, length + i - window + 1 if window > 0), length + i].
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/attention_heads.h"

namespace temper::reference {
namespace {

// cache' = cache with `rows` written from row `length` on. Both may share an address.
void Append(const Operand& cache, const Operand& rows, int64_t length, const Operand& updated) {
  if (updated.data() != cache.data()) std::memcpy(updated.data(), cache.data(), cache.type().bytes().v);
  for (int64_t i = 0; i < rows.elements(); ++i) updated.Store(length * cache.columns() + i, rows[i]);
}

}  // namespace

Status AttentionCached(const Call& call) {
  const Operand q = call.In(0), length_1 = call.In(5), o = call.Out(0), k = call.Out(1), v = call.Out(2);
  const int64_t S = q.rows(), C = k.rows(), length = length_1.Int(0);
  const int64_t H = call.attributes().Int("heads"), K = call.attributes().Int("kv_heads"), E = q.columns() / H,
                W = v.columns() / K;
  const int64_t group = H / K, window = call.attributes().IntOr("window", 0);
  const double scale = call.attributes().Double("scale"), cap = call.attributes().DoubleOr("softcap", 0);
  if (length < 0 || length + S > C) {
    return InvalidArgument(fmt::format("{} new tokens do not fit after {} in a cache of {}", S, length, C));
  }
  Append(call.In(3), call.In(1), length, k);
  Append(call.In(4), call.In(2), length, v);
  const AttentionOptions options = AttentionOptionsOf(call.attributes(), 6);
  double* score = call.Scratch(C);
  for (int64_t i = 0; i < S; ++i) {
    const int64_t last = length + i, first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
    for (int64_t h = 0; h < H; ++h) {
      const int64_t at_q = (i * H + h) * E;
      const double sink = options.sink < 0 ? -INFINITY : call.In(options.sink)[h];
      double max = sink, sum = 0;
      for (int64_t s = first; s <= last; ++s) {
        double dot = 0;
        for (int64_t e = 0; e < E; ++e) dot += q[at_q + e] * k[(s * K + h / group) * E + e];
        score[s] = Capped(scale * dot, cap);
        max = std::max(max, score[s]);
      }
      sum = std::exp(sink - max);
      for (int64_t s = first; s <= last; ++s) sum += std::exp(score[s] - max);
      for (int64_t e = 0; e < W; ++e) {
        double out = 0;
        for (int64_t s = first; s <= last; ++s) out += std::exp(score[s] - max) * v[(s * K + h / group) * W + e];
        o.Store((i * H + h) * W + e, out / sum);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
