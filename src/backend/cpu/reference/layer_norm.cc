// LayerNorm as torch.nn.LayerNorm: y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(var + eps), var biased (divided by
// D). plus_one: 1 + w in the place of w.
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status LayerNorm(const Call& call) {
  const Operand x_TD = call.In(0), w_D = call.In(1), b_D = call.In(2);
  const Operand y_TD = call.Out(0), mean_T = call.Out(1), rstd_T = call.Out(2);
  const double eps = call.attributes().Double("eps"), plus = call.attributes().Flag("plus_one");
  const int64_t T = x_TD.rows(), D = x_TD.columns();
  for (int64_t t = 0; t < T; ++t) {
    double mean = 0, variance = 0;
    for (int64_t d = 0; d < D; ++d) mean += x_TD[t * D + d];
    mean /= D;
    for (int64_t d = 0; d < D; ++d) variance += (x_TD[t * D + d] - mean) * (x_TD[t * D + d] - mean);
    const double rstd = 1 / std::sqrt(variance / D + eps);
    for (int64_t d = 0; d < D; ++d) y_TD.Store(t * D + d, (x_TD[t * D + d] - mean) * rstd * (plus + w_D[d]) + b_D[d]);
    mean_T.Store(t, mean);
    rstd_T.Store(t, rstd);
  }
  return OkStatus();
}

// With g = d_y * w and n = (x - mean) * rstd:  d_x = rstd * (g - mean(g) - n * mean(g * n)) + acc,
// d_w = sum over t of d_y * n, + acc_w;  d_b = sum over t of d_y, + acc_b.
Status LayerNormBackward(const Call& call) {
  const Operand d_y_TD = call.In(0), x_TD = call.In(1), w_D = call.In(2), mean_T = call.In(3), rstd_T = call.In(4);
  const Operand d_x_TD = call.Out(0);
  const bool acc = call.attributes().Flag("acc"), acc_w = call.attributes().Flag("acc_w");
  const double plus = call.attributes().Flag("plus_one");
  const int64_t T = x_TD.rows(), D = x_TD.columns();
  const auto normal = [&](int64_t t, int64_t d) { return (x_TD[t * D + d] - mean_T[t]) * rstd_T[t]; };
  // First d_w and d_b, which read what d_x may overwrite.
  if (call.attributes().Flag("grad_w")) {
    for (int64_t d = 0; d < D; ++d) {
      double d_w = acc_w ? call.In(5 + acc)[d] : 0, d_b = acc_w ? call.In(6 + acc)[d] : 0;
      for (int64_t t = 0; t < T; ++t) {
        d_w += d_y_TD[t * D + d] * normal(t, d);
        d_b += d_y_TD[t * D + d];
      }
      call.Out(1).Store(d, d_w);
      call.Out(2).Store(d, d_b);
    }
  }
  for (int64_t t = 0; t < T; ++t) {
    double mean_g = 0, mean_gn = 0;
    for (int64_t d = 0; d < D; ++d) {
      const double g = d_y_TD[t * D + d] * (plus + w_D[d]);
      mean_g += g;
      mean_gn += g * normal(t, d);
    }
    mean_g /= D;
    mean_gn /= D;
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = t * D + d;
      const double d_x = rstd_T[t] * (d_y_TD[i] * (plus + w_D[d]) - mean_g - normal(t, d) * mean_gn);
      d_x_TD.Store(i, d_x + (acc ? call.In(5)[i] : 0));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
