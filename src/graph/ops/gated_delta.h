// Sizes of gated_delta by its operands, and its scratch by them.
#pragma once

#include <algorithm>

#include "graph/ops/gated_delta_dims.h"
#include "graph/rule.h"

namespace temper {

// Of operands (q_T(K*D), k_T(K*D), v_T(H*F), ...); key_heads is 0 where they do not fit.
inline DeltaDims DeltaDimsOf(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& a) {
  DeltaDims d{.key_heads = a.Int("key_heads"), .value_heads = a.Int("heads")};
  if (q.shape.rank() != 2 || !(k == q) || v.shape.rank() != 2 || v.dtype != q.dtype || v.shape[0] != q.shape[0] ||
      d.key_heads <= 0 || d.value_heads <= 0 || d.value_heads % d.key_heads != 0 || q.shape[1] % d.key_heads != 0 ||
      v.shape[1] % d.value_heads != 0) {
    return {};
  }
  d.tokens = q.shape[0];
  d.row = std::min(d.tokens, a.IntOr("row", d.tokens));
  d.key_dim = q.shape[1] / d.key_heads;
  d.value_dim = v.shape[1] / d.value_heads;
  return d;
}

// A thread's scratch of a step of gated_delta_cached, in floats.
inline int64_t DeltaStepFloats(const DeltaDims& d) {
  return 2 * ((d.key_dim + 15) / 16 * 16);
}

inline DeltaScratch DeltaScratchOf(const DeltaDims& d, bool backward) {
  DeltaScratch s{};
  const auto take = [&s](int64_t n) {
    const int64_t at = s.floats;
    s.floats += (n + 15) / 16 * 16;
    return at;
  };
  constexpr int64_t C = kStateChunk;
  const int64_t D = d.key_dim, F = d.value_dim, G = d.group();
  s.q_CD = take(C * D);
  s.k_CD = take(C * D);
  s.k_DC = take(C * D);
  s.decayed_CD = take(C * D);
  s.kk_CC = take(C * C);
  s.qk_CC = take(C * C);
  s.decay_CC = take(C * C);
  s.system_CC = take(C * C);
  s.read_CC = take(C * C);
  s.u_CF = take(C * F);
  s.y_CF = take(C * F);
  s.gates_C = take(DeltaScratch::kGates * C);
  s.state_GDF = take(G * D * F);
  if (!backward) return s;
  s.d_q_CD = take(C * D);
  s.d_k_CD = take(C * D);
  s.d_o_CF = take(C * F);
  s.d_u_CF = take(C * F);
  s.u_FC = take(C * F);
  s.d_read_CC = take(C * C);
  s.d_kk_CC = take(C * C);
  s.d_qk_CC = take(C * C);
  s.d_state_GDF = take(G * D * F);
  s.state_FD = take(D * F);
  s.d_state_FD = take(D * F);
  s.states_NGDF = take(d.chunks() * G * D * F);
  return s;
}

}  // namespace temper
