// The gated delta rule as its recurrence, token by token, in double. The state S [D, F] of a value head is zero at a
// document's start; with k, q divided by their norms and q by sqrt(D), beta = sigmoid(b):
//   S' = exp(g) S;  r = beta (v - S'^T k);  S = S' + k r^T;  o = S^T q
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"
#include "graph/ops/gated_delta.h"

namespace temper::reference {
namespace {

// One token's row of a head, divided by its norm.
struct Normed {
  std::vector<double> y;
  double inverse = 0;
  Normed(const Operand& x, int64_t at, int64_t n) : y(static_cast<size_t>(n)) {
    double squares = kDeltaNormEps;
    for (int64_t d = 0; d < n; ++d) squares += x[at + d] * x[at + d];
    inverse = 1 / std::sqrt(squares);
    for (int64_t d = 0; d < n; ++d) y[static_cast<size_t>(d)] = x[at + d] * inverse;
  }
  // The gradient of element d of x, from that of y, d_y, with along = y . d_y.
  double Gradient(int64_t d, double d_y, double along) const {
    return inverse * (d_y - y[static_cast<size_t>(d)] * along);
  }
};

struct Rule {
  DeltaDims d;
  int64_t D, F;
  double scale;
  Rule(const Operand& q, const Operand& k, const Operand& v, const Attributes& a)
      : d(DeltaDimsOf(q.type(), k.type(), v.type(), a)),
        D(d.key_dim),
        F(d.value_dim),
        scale(1 / std::sqrt(static_cast<double>(d.key_dim))) {}
  int64_t KeyAt(int64_t t, int64_t h) const { return (t * d.key_heads + h / d.group()) * D; }
  int64_t ValueAt(int64_t t, int64_t h) const { return (t * d.value_heads + h) * F; }
  int64_t GateAt(int64_t t, int64_t h) const { return t * d.value_heads + h; }
};

// The state decayed, then what is written of it: S [D, F] becomes S', r [F]; then S' + k r^T if `write`.
void Advance(const Rule& rule, const Normed& k, const Operand& v, int64_t v_at, double g, double beta, double* S,
             double* r) {
  const double decay = std::exp(g);
  for (int64_t i = 0; i < rule.D * rule.F; ++i) S[i] *= decay;
  for (int64_t f = 0; f < rule.F; ++f) {
    double held = 0;
    for (int64_t d = 0; d < rule.D; ++d) held += S[d * rule.F + f] * k.y[static_cast<size_t>(d)];
    r[f] = beta * (v[v_at + f] - held);
  }
}

// Token t of value head h: S [D, F] becomes the state behind it, from which o is read. r: scratch [F].
void Read(const Rule& rule, const Operand& q, const Operand& k, const Operand& v, const Operand& g, const Operand& b,
          int64_t t, int64_t h, double* S, double* r, const Operand& o) {
  const Normed key(k, rule.KeyAt(t, h), rule.D), query(q, rule.KeyAt(t, h), rule.D);
  Advance(rule, key, v, rule.ValueAt(t, h), g[rule.GateAt(t, h)], Sigmoid(b[rule.GateAt(t, h)]), S, r);
  for (int64_t f = 0; f < rule.F; ++f) {
    double out = 0;
    for (int64_t d = 0; d < rule.D; ++d) {
      S[d * rule.F + f] += key.y[static_cast<size_t>(d)] * r[f];
      out += S[d * rule.F + f] * query.y[static_cast<size_t>(d)];
    }
    o.Store(rule.ValueAt(t, h) + f, rule.scale * out);
  }
}

}  // namespace

Status GatedDelta(const Call& call) {
  const Operand q = call.In(0), k = call.In(1), v = call.In(2), g = call.In(3), b = call.In(4), start = call.In(5);
  const Operand o = call.Out(0);
  const Rule rule(q, k, v, call.attributes());
  const int64_t D = rule.D, F = rule.F;
  double* const S = call.Scratch(D * F + F);
  double* const r = S + D * F;
  for (int64_t h = 0; h < rule.d.value_heads; ++h) {
    for (int64_t t = 0; t < rule.d.tokens; ++t) {
      if (start.Int(t) == t) std::fill_n(S, D * F, 0.0);
      Read(rule, q, k, v, g, b, t, h, S, r, o);
    }
  }
  return OkStatus();
}

// From the last token to the first, with dS, the gradient of the state behind it:
//   dS += q d_o^T, d_q = S d_o;  d_r = dS^T k, d_k = dS r;  w = -beta d_r, d_v = -w, d_beta = d_r . (v - S'^T k);
//   d_k += S' w, dS' = dS + k w^T;  d_g = <dS', S'>, dS of the token before = exp(g) dS'.
Status GatedDeltaBackward(const Call& call) {
  const Operand d_o = call.In(0), q = call.In(1), k = call.In(2), v = call.In(3), g = call.In(4), b = call.In(5);
  const Operand start = call.In(6);
  const Operand d_q = call.Out(0), d_k = call.Out(1), d_v = call.Out(2), d_g = call.Out(3), d_b = call.Out(4);
  const Rule rule(q, k, v, call.attributes());
  const int64_t D = rule.D, F = rule.F, T = rule.d.tokens, size = D * F, K = rule.d.key_heads;
  // S' of each token; then S, dS, r, d_r; then sums of d_q and d_k over the value heads of a key head.
  double* const decayed = call.Scratch(T * size + 2 * size + 2 * F + 2 * T * K * D);
  double *const S = decayed + T * size, *const dS = S + size, *const r = dS + size, *const d_r = r + F;
  double *const sum_q = d_r + F, *const sum_k = sum_q + T * K * D;
  std::fill_n(sum_q, 2 * T * K * D, 0.0);
  for (int64_t h = 0; h < rule.d.value_heads; ++h) {
    for (int64_t t = 0; t < T; ++t) {
      if (start.Int(t) == t) std::fill_n(S, size, 0.0);
      const Normed key(k, rule.KeyAt(t, h), D);
      Advance(rule, key, v, rule.ValueAt(t, h), g[rule.GateAt(t, h)], Sigmoid(b[rule.GateAt(t, h)]), S, r);
      std::copy_n(S, size, decayed + t * size);
      for (int64_t i = 0; i < size; ++i) S[i] += key.y[static_cast<size_t>(i / F)] * r[i % F];
    }
    for (int64_t t = T; t-- > 0;) {
      if (t == T - 1 || start.Int(t + 1) == t + 1) std::fill_n(dS, size, 0.0);
      const int64_t key_at = rule.KeyAt(t, h), value_at = rule.ValueAt(t, h), gate_at = rule.GateAt(t, h);
      const Normed key(k, key_at, D), query(q, key_at, D);
      const double beta = Sigmoid(b[gate_at]);
      const double* const before = decayed + t * size;  // S'
      double d_beta = 0;
      for (int64_t f = 0; f < F; ++f) {
        double held = 0;
        for (int64_t d = 0; d < D; ++d) held += before[d * F + f] * key.y[static_cast<size_t>(d)];
        const double off = v[value_at + f] - held;
        r[f] = beta * off;
        d_r[f] = 0;
        for (int64_t d = 0; d < D; ++d) {
          const double k_d = key.y[static_cast<size_t>(d)];
          const double d_out = rule.scale * d_o[value_at + f];
          dS[d * F + f] += query.y[static_cast<size_t>(d)] * d_out;
          sum_q[key_at + d] += (before[d * F + f] + k_d * r[f]) * d_out;
          d_r[f] += dS[d * F + f] * k_d;
        }
        d_beta += d_r[f] * off;
        d_v.Store(value_at + f, beta * d_r[f]);
      }
      double d_decay = 0;
      for (int64_t d = 0; d < D; ++d) {
        for (int64_t f = 0; f < F; ++f) {
          double& s = dS[d * F + f];
          const double w = -beta * d_r[f];
          sum_k[key_at + d] += s * r[f] + before[d * F + f] * w;
          s += key.y[static_cast<size_t>(d)] * w;
          d_decay += s * before[d * F + f];
          s *= std::exp(g[gate_at]);
        }
      }
      d_g.Store(gate_at, d_decay);
      d_b.Store(gate_at, d_beta * beta * (1 - beta));
    }
  }
  for (int64_t at = 0; at < T * K * D; at += D) {
    for (const auto& [x, sum, d_x] : {std::tuple{&q, sum_q, &d_q}, std::tuple{&k, sum_k, &d_k}}) {
      const Normed normed(*x, at, D);
      double along = 0;
      for (int64_t d = 0; d < D; ++d) along += normed.y[static_cast<size_t>(d)] * sum[at + d];
      for (int64_t d = 0; d < D; ++d) d_x->Store(at + d, normed.Gradient(d, sum[at + d], along));
    }
  }
  return OkStatus();
}

Status GatedDeltaCached(const Call& call) {
  const Operand q = call.In(0), k = call.In(1), v = call.In(2), g = call.In(3), b = call.In(4), state = call.In(5);
  const Operand slot = call.In(6), position = call.In(7), o = call.Out(0), after = call.Out(1);
  const Rule rule(q, k, v, call.attributes());
  const int64_t size = rule.D * rule.F, V = rule.d.value_heads;
  double* const states = call.Scratch(state.elements() + rule.F);
  for (int64_t i = 0; i < state.elements(); ++i) states[i] = state[i];
  for (int64_t t = 0; t < rule.d.tokens; ++t) {
    for (int64_t h = 0; h < V; ++h) {
      if (slot.Int(t) < 0) {
        for (int64_t f = 0; f < rule.F; ++f) o.Store(rule.ValueAt(t, h) + f, 0);
        continue;
      }
      double* const S = states + (slot.Int(t) * V + h) * size;
      if (position.Int(t) == 0) std::fill_n(S, size, 0.0);
      Read(rule, q, k, v, g, b, t, h, S, states + state.elements(), o);
    }
  }
  for (int64_t i = 0; i < state.elements(); ++i) after.Store(i, states[i]);
  return OkStatus();
}

}  // namespace temper::reference
