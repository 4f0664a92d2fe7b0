// Sizes of ssd by its operands, and its scratch by them.
#pragma once

#include <algorithm>

#include "graph/ops/ssd_dims.h"
#include "graph/rule.h"

namespace temper {

// Of operands (x_T(H*P), b_T(G*N), c_T(G*N), ...); groups is 0 where they do not fit.
inline SsdDims SsdDimsOf(const TensorType& x, const TensorType& b, const TensorType& c, const Attributes& a) {
  SsdDims d{.groups = a.Int("groups"), .heads = a.Int("heads")};
  if (x.shape.rank() != 2 || b.shape.rank() != 2 || !(c == b) || b.dtype != x.dtype || b.shape[0] != x.shape[0] ||
      d.groups <= 0 || d.heads <= 0 || d.heads % d.groups != 0 || b.shape[1] % d.groups != 0 ||
      x.shape[1] % d.heads != 0) {
    return {};
  }
  d.tokens = x.shape[0];
  d.row = std::min(d.tokens, a.IntOr("row", d.tokens));
  d.state_dim = b.shape[1] / d.groups;
  d.value_dim = x.shape[1] / d.heads;
  return d;
}

inline SsdScratch SsdScratchOf(const SsdDims& d, bool backward) {
  SsdScratch s{};
  const auto take = [&s](int64_t n) {
    const int64_t at = s.floats;
    s.floats += (n + 15) / 16 * 16;
    return at;
  };
  constexpr int64_t C = kStateChunk;
  const int64_t N = d.state_dim, P = d.value_dim, J = std::min(d.group(), kSsdHeads);
  s.b_CN = take(C * N);
  s.c_CN = take(C * N);
  s.b_NC = take(C * N);
  s.scaled_CN = take(C * N);
  s.cb_CC = take(C * C);
  s.decay_CC = take(C * C);
  s.read_CC = take(C * C);
  s.u_CP = take(C * P);
  s.y_CP = take(C * P);
  s.gates_C = take(SsdScratch::kGates * C);
  s.state_JNP = take(J * N * P);
  if (!backward) return s;
  s.d_b_CN = take(C * N);
  s.d_c_CN = take(C * N);
  s.d_y_CP = take(C * P);
  s.d_u_CP = take(C * P);
  s.u_PC = take(C * P);
  s.d_read_CC = take(C * C);
  s.d_cb_CC = take(C * C);
  s.d_state_JNP = take(J * N * P);
  s.state_PN = take(N * P);
  s.d_state_PN = take(N * P);
  s.states_KJNP = take(d.chunks() * J * N * P);
  return s;
}

}  // namespace temper
