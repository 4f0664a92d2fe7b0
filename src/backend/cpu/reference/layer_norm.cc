// LayerNorm as torch.nn.LayerNorm: y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(var + eps), var biased (divided by
// D). plus_one: 1 + w in the place of w. A group counts as a row, and the norm of all that follows is over its width.
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// What scales or shifts element i of x: groups share their parameters, or have their own.
struct Parameter {
  Operand of;
  double plus = 0;
  double operator[](int64_t i) const { return of[i % of.elements()] + plus; }
};

}  // namespace

Status LayerNorm(const Call& call) {
  const Operand x_TD = call.In(0), y_TD = call.Out(0), mean_T = call.Out(1), rstd_T = call.Out(2);
  const bool shifted = !call.attributes().Flag("unshifted");
  const double eps = call.attributes().Double("eps"), plus = call.attributes().Flag("plus_one");
  const Parameter w{call.In(1), plus}, b{call.In(shifted ? 2 : 1)};
  const int64_t T = mean_T.elements(), D = call.In(1).columns();
  for (int64_t t = 0; t < T; ++t) {
    double mean = 0, variance = 0;
    for (int64_t i = t * D; i < (t + 1) * D; ++i) mean += x_TD[i];
    mean /= D;
    for (int64_t i = t * D; i < (t + 1) * D; ++i) variance += (x_TD[i] - mean) * (x_TD[i] - mean);
    const double rstd = 1 / std::sqrt(variance / D + eps);
    for (int64_t i = t * D; i < (t + 1) * D; ++i) {
      y_TD.Store(i, (x_TD[i] - mean) * rstd * w[i] + (shifted ? b[i] : 0));
    }
    mean_T.Store(t, mean);
    rstd_T.Store(t, rstd);
  }
  return OkStatus();
}

// With g = d_y * w and n = (x - mean) * rstd:  d_x = rstd * (g - mean(g) - n * mean(g * n)) + acc,
// d_w = sum over t of d_y * n, + acc_w;  d_b = sum over t of d_y, + acc_b.
Status LayerNormBackward(const Call& call) {
  const Operand d_y_TD = call.In(0), x_TD = call.In(1), mean_T = call.In(3), rstd_T = call.In(4);
  const Operand d_x_TD = call.Out(0);
  const bool acc = call.attributes().Flag("acc"), acc_w = call.attributes().Flag("acc_w");
  const bool shifted = !call.attributes().Flag("unshifted");
  const Parameter w{call.In(2), static_cast<double>(call.attributes().Flag("plus_one"))};
  const int64_t T = mean_T.elements(), D = call.In(2).columns(), W = call.In(2).elements();
  const auto normal = [&](int64_t i) { return (x_TD[i] - mean_T[i / D]) * rstd_T[i / D]; };
  // First d_w and d_b, which read what d_x may overwrite.
  if (call.attributes().Flag("grad_w")) {
    for (int64_t d = 0; d < W; ++d) {
      double d_w = acc_w ? call.In(5 + acc)[d] : 0, d_b = acc_w && shifted ? call.In(6 + acc)[d] : 0;
      for (int64_t i = d; i < T * D; i += W) {
        d_w += d_y_TD[i] * normal(i);
        d_b += d_y_TD[i];
      }
      call.Out(1).Store(d, d_w);
      if (shifted) call.Out(2).Store(d, d_b);
    }
  }
  for (int64_t t = 0; t < T; ++t) {
    double mean_g = 0, mean_gn = 0;
    for (int64_t i = t * D; i < (t + 1) * D; ++i) {
      const double g = d_y_TD[i] * w[i];
      mean_g += g;
      mean_gn += g * normal(i);
    }
    mean_g /= D;
    mean_gn /= D;
    for (int64_t i = t * D; i < (t + 1) * D; ++i) {
      const double d_x = rstd_T[t] * (d_y_TD[i] * w[i] - mean_g - normal(i) * mean_gn);
      d_x_TD.Store(i, d_x + (acc ? call.In(5)[i] : 0));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
