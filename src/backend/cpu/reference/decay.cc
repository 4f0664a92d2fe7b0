// g = -exp(A_log) * softplus(a + dt_bias), for each token and head; dt = softplus(a + dt_bias), if asked for; the
// softplus is `min` or more.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"

namespace temper::reference {
namespace {

double LeastStep(const Call& call) {
  return call.attributes().DoubleOr("min", 0);
}

}  // namespace

Status Decay(const Call& call) {
  const Operand a = call.In(0), a_log = call.In(1), dt_bias = call.In(2), g = call.Out(0);
  const int64_t T = a.rows(), H = a.columns();
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t h = 0; h < H; ++h) {
      const double step = std::max(Softplus(a[t * H + h] + dt_bias[h]), LeastStep(call));
      g.Store(t * H + h, -std::exp(a_log[h]) * step);
      if (call.attributes().Flag("steps")) call.Out(1).Store(t * H + h, step);
    }
  }
  return OkStatus();
}

// softplus'(x) is the logistic function.
Status DecayBackward(const Call& call) {
  const bool steps = call.attributes().Flag("steps");
  const int first = 1 + steps;  // of the forward's operands
  const Operand d_g = call.In(0), a = call.In(first), a_log = call.In(first + 1), dt_bias = call.In(first + 2);
  const bool grad_w = call.attributes().Flag("grad_w"), acc_w = call.attributes().Flag("acc_w");
  const int64_t T = a.rows(), H = a.columns();
  for (int64_t h = 0; h < H; ++h) {
    const double rate = -std::exp(a_log[h]);
    double d_a_log = acc_w ? call.In(first + 3)[h] : 0, d_dt_bias = acc_w ? call.In(first + 4)[h] : 0;
    for (int64_t t = 0; t < T; ++t) {
      const double x = a[t * H + h] + dt_bias[h], d = d_g[t * H + h];
      const double d_a =
          (d * rate + (steps ? call.In(1)[t * H + h] : 0)) * (Softplus(x) < LeastStep(call) ? 0 : Sigmoid(x));
      call.Out(0).Store(t * H + h, d_a);
      d_a_log += d * rate * std::max(Softplus(x), LeastStep(call));
      d_dt_bias += d_a;
    }
    if (!grad_w) continue;
    call.Out(1).Store(h, d_a_log);
    call.Out(2).Store(h, d_dt_bias);
  }
  return OkStatus();
}

}  // namespace temper::reference
