// A short causal convolution of each channel along its document: the last tap meets the token itself. Sums in double.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"

namespace temper::reference {
namespace {

// Token t of channel c, before the activation and without the bias.
double Convolved(const Operand& x_TC, const Operand& w_CL, int64_t document_start, int64_t t, int64_t c) {
  const int64_t C = x_TC.columns(), L = w_CL.type().shape[2];
  double u = 0;
  for (int64_t j = 0; j < L && t - j >= document_start; ++j) u += w_CL[c * L + L - 1 - j] * x_TC[(t - j) * C + c];
  return u;
}

}  // namespace

Status ShortConv(const Call& call) {
  const Operand x = call.In(0), w = call.In(1), start = call.In(2), y = call.Out(0);
  const int64_t T = x.rows(), C = x.columns();
  const bool silu = call.attributes().Flag("silu"), bias = call.attributes().Flag("bias");
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t c = 0; c < C; ++c) {
      const double u = Convolved(x, w, start.Int(t), t, c) + (bias ? call.In(3)[c] : 0);
      y.Store(t * C + c, silu ? u * Sigmoid(u) : u);
    }
  }
  return OkStatus();
}

Status ShortConvBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), w = call.In(2), start = call.In(3), d_x = call.Out(0);
  const int64_t T = x.rows(), C = x.columns(), L = w.type().shape[2];
  const bool silu = call.attributes().Flag("silu"), grad_w = call.attributes().Flag("grad_w");
  const bool acc_w = call.attributes().Flag("acc_w"), bias = call.attributes().Flag("bias");
  double* const sums = call.Scratch(T * C + C * L + C);  // of d_x, then of d_w, then of d_bias
  double *const sums_w = sums + T * C, *const sums_b = sums_w + C * L;
  std::fill_n(sums, T * C + C * L + C, 0.0);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t c = 0; c < C; ++c) {
      double d_u = d_y[t * C + c];
      if (silu) {
        const double u = Convolved(x, w, start.Int(t), t, c) + (bias ? call.In(4)[c] : 0), s = Sigmoid(u);
        d_u *= s * (1 + u * (1 - s));
      }
      sums_b[c] += d_u;
      for (int64_t j = 0; j < L && t - j >= start.Int(t); ++j) {
        sums[(t - j) * C + c] += d_u * w[c * L + L - 1 - j];
        sums_w[c * L + L - 1 - j] += d_u * x[(t - j) * C + c];
      }
    }
  }
  for (int64_t i = 0; i < T * C; ++i) d_x.Store(i, sums[i]);
  const int acc = 4 + bias;
  for (int64_t i = 0; grad_w && i < C * L; ++i) call.Out(1).Store(i, sums_w[i] + (acc_w ? call.In(acc)[i] : 0));
  for (int64_t i = 0; grad_w && bias && i < C; ++i) {
    call.Out(2).Store(i, sums_b[i] + (acc_w ? call.In(acc + 1)[i] : 0));
  }
  return OkStatus();
}

Status ShortConvCached(const Call& call) {
  const Operand x = call.In(0), w = call.In(1), state = call.In(2), slot = call.In(3), position = call.In(4);
  const Operand y = call.Out(0), after = call.Out(1);
  const int64_t S = x.rows(), C = x.columns(), L = w.type().shape[2];
  const bool silu = call.attributes().Flag("silu"), bias = call.attributes().Flag("bias");
  double* const states = call.Scratch(state.elements());
  for (int64_t i = 0; i < state.elements(); ++i) states[i] = state[i];
  for (int64_t s = 0; s < S; ++s) {
    for (int64_t c = 0; c < C; ++c) {
      if (slot.Int(s) < 0) {
        y.Store(s * C + c, 0);
        continue;
      }
      double* const of_slot = states + slot.Int(s) * (L - 1) * C + c;  // the token j before is in row L - 1 - j
      double u = w[c * L + L - 1] * x[s * C + c] + (bias ? call.In(5)[c] : 0);
      for (int64_t j = 1; j < L && j <= position.Int(s); ++j) u += w[c * L + L - 1 - j] * of_slot[(L - 1 - j) * C];
      y.Store(s * C + c, silu ? u * Sigmoid(u) : u);
      for (int64_t r = 0; r + 2 < L; ++r) of_slot[r * C] = of_slot[(r + 1) * C];
      if (L > 1) of_slot[(L - 2) * C] = x[s * C + c];
    }
  }
  for (int64_t i = 0; i < state.elements(); ++i) after.Store(i, states[i]);
  return OkStatus();
}

}  // namespace temper::reference
