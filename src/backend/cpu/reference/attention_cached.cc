// Attention of S new tokens over a cache in pages. Token i is at place position_S[i] of the sequence in slot_S[i]; the
// places of a slot lie in the pages that its row of page_table_NP names, here a row of the cache each. All new keys and
// values are written first; then token i attends to places [max(0, position - window + 1 if window > 0), position] of
// its slot. A token of slot -1 stands for nothing and becomes zero. With `stored` they are written already.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/slopes.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/attention_cache.h"
#include "graph/ops/attention_heads.h"

namespace temper::reference {

Status AttentionCached(const Call& call) {
  const Operand q = call.In(0), slot_S = call.In(5), position_S = call.In(6), page_table = call.In(7);
  const Attributes& a = call.attributes();
  const bool stored = a.Flag("stored");
  const Operand o = call.Out(0), k = stored ? call.In(3) : call.Out(1), v = stored ? call.In(4) : call.Out(2);
  const int64_t S = q.rows(), N = page_table.rows(), P = page_table.columns(), page = a.Int("page");
  const int64_t H = a.Int("heads"), K = a.Int("kv_heads"), E = q.columns() / H, W = call.In(2).columns() / K;
  const int64_t group = H / K, window = a.IntOr("window", 0), wide = CachedWidth(W);
  const double scale = a.Double("scale"), cap = a.DoubleOr("softcap", 0);
  const AttentionOptions options = AttentionOptionsOf(a, 8);
  const Slopes slopes(a);
  const auto row_of = [&](int64_t slot, int64_t position) {
    return page_table.Int(slot * P + position / page) * page + position % page;
  };
  for (int64_t i = 0; i < S; ++i) {
    const int64_t slot = slot_S.Int(i), position = position_S.Int(i);
    if (slot < 0) continue;
    if (slot >= N || position < 0 || position >= P * page) {
      return InvalidArgument(
          fmt::format("token {} is at place {} of slot {}, of {} slots of {} tokens", i, position, slot, N, P * page));
    }
    for (int64_t p = 0; p <= position / page; ++p) {
      const int64_t at = page_table.Int(slot * P + p);
      if (at < 0 || at >= k.rows() / page) {
        return InvalidArgument(fmt::format("page {} of slot {} is {}, of {} pages", p, slot, at, k.rows() / page));
      }
    }
  }
  for (int c = 0; c < 2 && !stored; ++c) {
    const Operand &from = call.In(3 + c), &to = call.Out(1 + c);
    if (to.data() != from.data()) std::memcpy(to.data(), from.data(), static_cast<size_t>(from.type().bytes().v));
  }
  for (int64_t i = 0; i < S && !stored; ++i) {
    if (slot_S.Int(i) < 0) continue;
    const int64_t row = row_of(slot_S.Int(i), position_S.Int(i));
    for (int64_t h = 0; h < K; ++h) {
      for (int64_t e = 0; e < E; ++e) k.Store((row * K + h) * E + e, call.In(1)[(i * K + h) * E + e]);
      for (int64_t e = 0; e < W; ++e) v.Store((row * K + h) * wide + e, call.In(2)[(i * K + h) * W + e]);
    }
  }
  double* score = call.Scratch(P * page);
  for (int64_t i = 0; i < S; ++i) {
    const int64_t slot = slot_S.Int(i), last = position_S.Int(i);
    const int64_t first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
    for (int64_t h = 0; h < H; ++h) {
      const int64_t at_o = (i * H + h) * W;
      if (slot < 0) {
        for (int64_t e = 0; e < W; ++e) o.Store(at_o + e, 0);
        continue;
      }
      const double sink = options.sink < 0 ? -INFINITY : call.In(options.sink)[h];
      double max = sink, sum = 0;
      for (int64_t s = first; s <= last; ++s) {
        double dot = 0;
        for (int64_t e = 0; e < E; ++e) dot += q[(i * H + h) * E + e] * k[(row_of(slot, s) * K + h / group) * E + e];
        score[s] = Capped(scale * (dot + slopes.At(h, s, last, first)), cap);
        max = std::max(max, score[s]);
      }
      sum = std::exp(sink - max);
      for (int64_t s = first; s <= last; ++s) sum += std::exp(score[s] - max);
      for (int64_t e = 0; e < W; ++e) {
        double out = 0;
        for (int64_t s = first; s <= last; ++s) {
          out += std::exp(score[s] - max) * v[(row_of(slot, s) * K + h / group) * wide + e];
        }
        o.Store(at_o + e, out / sum);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
