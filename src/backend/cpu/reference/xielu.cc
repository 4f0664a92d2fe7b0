// xIELU, as graph/ops/xielu.cc has it.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"

namespace temper::reference {
namespace {

struct Numbers {
  double p, n, beta, eps;
  // `first`: the operand alpha_p.
  Numbers(const Call& call, int first)
      : p(Softplus(call.In(first)[0])),
        n(call.In(first + 2)[0] + Softplus(call.In(first + 1)[0])),
        beta(call.In(first + 2)[0]),
        eps(call.In(first + 3)[0]) {}
  // What n multiplies.
  double Below(double x) const { return std::expm1(std::min(x, eps)) - x; }
};

}  // namespace

Status Xielu(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const Numbers of(call, 1);
  for (int64_t i = 0; i < y.elements(); ++i) {
    y.Store(i, (x[i] > 0 ? of.p * x[i] * x[i] : of.n * of.Below(x[i])) + of.beta * x[i]);
  }
  return OkStatus();
}

// softplus'(x) is the logistic function.
Status XieluBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), d_x = call.Out(0);
  const Numbers of(call, 2);
  const bool acc_w = call.attributes().Flag("acc_w");
  double d_p = 0, d_n = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double a = x[i], d = d_y[i];
    const double slope = a > 0 ? 2 * of.p * a : of.n * ((a < of.eps ? std::exp(a) : 0) - 1);
    d_p += a > 0 ? d * a * a : 0;
    d_n += a > 0 ? 0 : d * of.Below(a);
    d_x.Store(i, d * (slope + of.beta));
  }
  if (!call.attributes().Flag("grad_w")) return OkStatus();
  call.Out(1).Store(0, (acc_w ? call.In(6)[0] : 0) + d_p * Sigmoid(call.In(2)[0]));
  call.Out(2).Store(0, (acc_w ? call.In(7)[0] : 0) + d_n * Sigmoid(call.In(3)[0]));
  return OkStatus();
}

}  // namespace temper::reference
