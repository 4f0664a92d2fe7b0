// The state-space duality as its recurrence, token by token, in double. The state S [N, P] of a head is zero at a
// document's start:
//   S <- exp(g) S + b (dt x)^T;  y = S^T c + d x
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "graph/ops/ssd.h"

namespace temper::reference {
namespace {

// (x, b, c, g, dt, d) from operand `first` on.
struct Duality {
  Operand x, b, c, g, dt, d;
  SsdDims dims;
  int64_t N, P;
  Duality(const Call& call, int first)
      : x(call.In(first)),
        b(call.In(first + 1)),
        c(call.In(first + 2)),
        g(call.In(first + 3)),
        dt(call.In(first + 4)),
        d(call.In(first + 5)),
        dims(SsdDimsOf(x.type(), b.type(), c.type(), call.attributes())),
        N(dims.state_dim),
        P(dims.value_dim) {}
  int64_t BAt(int64_t t, int64_t h) const { return (t * dims.groups + h / dims.group()) * N; }
  int64_t XAt(int64_t t, int64_t h) const { return (t * dims.heads + h) * P; }
  int64_t GateAt(int64_t t, int64_t h) const { return t * dims.heads + h; }

  // Token t of head h: S [N, P] becomes the state behind it.
  void Advance(int64_t t, int64_t h, double* S) const {
    const double decay = std::exp(g[GateAt(t, h)]), step = dt[GateAt(t, h)];
    for (int64_t i = 0; i < N * P; ++i) S[i] = decay * S[i] + b[BAt(t, h) + i / P] * step * x[XAt(t, h) + i % P];
  }
  void Read(int64_t t, int64_t h, const double* S, const Operand& y) const {
    for (int64_t p = 0; p < P; ++p) {
      double sum = d[h] * x[XAt(t, h) + p];
      for (int64_t n = 0; n < N; ++n) sum += S[n * P + p] * c[BAt(t, h) + n];
      y.Store(XAt(t, h) + p, sum);
    }
  }
};

}  // namespace

Status Ssd(const Call& call) {
  const Duality f(call, 0);
  const Operand start = call.In(6), y = call.Out(0);
  double* const S = call.Scratch(f.N * f.P);
  for (int64_t h = 0; h < f.dims.heads; ++h) {
    for (int64_t t = 0; t < f.dims.tokens; ++t) {
      if (start.Int(t) == t) std::fill_n(S, f.N * f.P, 0.0);
      f.Advance(t, h, S);
      f.Read(t, h, S, y);
    }
  }
  return OkStatus();
}

// From the last token to the first, with dS, the gradient of the state behind it:
//   dS += c d_y^T, d_c = S d_y;  d_b = dt dS x, d_x = dt dS^T b + d d_y, d_dt = b^T dS x;
//   d_g = exp(g) <dS, S before>, dS of the token before = exp(g) dS. Of d a token adds x . d_y.
Status SsdBackward(const Call& call) {
  const Duality f(call, 1);
  const Operand d_y = call.In(0), start = call.In(7);
  const Operand d_x = call.Out(0), d_b = call.Out(1), d_c = call.Out(2), d_g = call.Out(3), d_dt = call.Out(4);
  const Operand d_d = call.Out(5);
  const int64_t N = f.N, P = f.P, T = f.dims.tokens, size = N * P, of_b = T * f.dims.groups * N;
  // The state behind each token, with zeros in front; dS; sums of d_b and d_c over the heads of a group.
  double* const behind = call.Scratch((T + 2) * size + 2 * of_b);
  double *const dS = behind + (T + 1) * size, *const sum_b = dS + size, *const sum_c = sum_b + of_b;
  std::fill_n(sum_b, 2 * of_b, 0.0);
  std::fill_n(behind, size, 0.0);
  for (int64_t h = 0; h < f.dims.heads; ++h) {
    for (int64_t t = 0; t < T; ++t) {
      double* const S = behind + (t + 1) * size;
      if (start.Int(t) == t) std::fill_n(S, size, 0.0);
      if (start.Int(t) != t) std::copy_n(S - size, size, S);
      f.Advance(t, h, S);
    }
    for (int64_t t = T; t-- > 0;) {
      if (t == T - 1 || start.Int(t + 1) == t + 1) std::fill_n(dS, size, 0.0);
      const bool first = start.Int(t) == t;
      const double *const S = behind + (t + 1) * size, *const before = S - size;
      const int64_t b_at = f.BAt(t, h), x_at = f.XAt(t, h), gate_at = f.GateAt(t, h);
      const double decay = std::exp(f.g[gate_at]), step = f.dt[gate_at];
      double d_decay = 0, d_step = 0, d_skip = 0;
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t p = 0; p < P; ++p) {
          double& s = dS[n * P + p];
          s += f.c[b_at + n] * d_y[x_at + p];
          sum_c[b_at + n] += S[n * P + p] * d_y[x_at + p];
          sum_b[b_at + n] += step * s * f.x[x_at + p];
          d_step += f.b[b_at + n] * s * f.x[x_at + p];
          if (!first) d_decay += decay * s * before[n * P + p];
        }
      }
      for (int64_t p = 0; p < P; ++p) {
        double sum = f.d[h] * d_y[x_at + p];
        for (int64_t n = 0; n < N; ++n) sum += step * dS[n * P + p] * f.b[b_at + n];
        d_x.Store(x_at + p, sum);
        d_skip += f.x[x_at + p] * d_y[x_at + p];
      }
      for (int64_t i = 0; i < size; ++i) dS[i] *= decay;
      d_g.Store(gate_at, d_decay);
      d_dt.Store(gate_at, d_step);
      d_d.Store(gate_at, d_skip);
    }
  }
  for (int64_t i = 0; i < of_b; ++i) {
    d_b.Store(i, sum_b[i]);
    d_c.Store(i, sum_c[i]);
  }
  return OkStatus();
}

Status SsdCached(const Call& call) {
  const Duality f(call, 0);
  const Operand state = call.In(6), slot = call.In(7), position = call.In(8), y = call.Out(0), after = call.Out(1);
  const int64_t size = f.N * f.P;
  double* const states = call.Scratch(state.elements());
  for (int64_t i = 0; i < state.elements(); ++i) states[i] = state[i];
  for (int64_t t = 0; t < f.dims.tokens; ++t) {
    for (int64_t h = 0; h < f.dims.heads; ++h) {
      if (slot.Int(t) < 0) {
        for (int64_t p = 0; p < f.P; ++p) y.Store(f.XAt(t, h) + p, 0);
        continue;
      }
      double* const S = states + (slot.Int(t) * f.dims.heads + h) * size;
      if (position.Int(t) == 0) std::fill_n(S, size, 0.0);
      f.Advance(t, h, S);
      f.Read(t, h, S, y);
    }
  }
  for (int64_t i = 0; i < state.elements(); ++i) after.Store(i, states[i]);
  return OkStatus();
}

}  // namespace temper::reference
