// RMSNorm (Zhang and Sennrich 2019) as HF's LlamaRMSNorm: y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps).
// HF rounds x * rstd to the dtype of x before the product with w; here y is rounded once. plus_one: w is 1 + the
// operand.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// What scales element i of x. Groups share their scales, or have their own.
struct Factors {
  Operand w_D;
  double plus;
  int64_t width;  // of a row that is normed: a group counts as a row
  Factors(const Call& call, int input)
      : w_D(call.In(input)),
        plus(call.attributes().Flag("plus_one")),
        width(w_D.elements() / std::max<int64_t>(call.attributes().IntOr("groups", 0), 1)) {}
  double operator[](int64_t i) const { return w_D[i % w_D.elements()] + plus; }
  int64_t elements() const { return w_D.elements(); }
};

}  // namespace

Status RmsNorm(const Call& call) {
  const Operand x_TD = call.In(0), y_TD = call.Out(0), rstd_T = call.Out(1);
  const Factors w_D(call, 1);
  const double eps = call.attributes().Double("eps");
  const int64_t T = rstd_T.elements(), D = w_D.width;
  for (int64_t t = 0; t < T; ++t) {
    double squares = 0;
    for (int64_t d = 0; d < D; ++d) squares += x_TD[t * D + d] * x_TD[t * D + d];
    const double rstd = 1 / std::sqrt(squares / D + eps);
    for (int64_t d = 0; d < D; ++d) y_TD.Store(t * D + d, x_TD[t * D + d] * rstd * w_D[t * D + d]);
    rstd_T.Store(t, rstd);
  }
  return OkStatus();
}

// With g = d_y * w and n = x * rstd:  d_x = rstd * (g - n * mean(g * n)) + acc,  d_w = sum over t of d_y * n, + acc_w.
Status RmsNormBackward(const Call& call) {
  const Operand d_y_TD = call.In(0), x_TD = call.In(1), rstd_T = call.In(3), d_x_TD = call.Out(0);
  const Factors w_D(call, 2);
  const bool acc = call.attributes().Flag("acc"), acc_w = call.attributes().Flag("acc_w");
  const int64_t T = rstd_T.elements(), D = w_D.width, W = w_D.elements();
  // First d_w, which reads what d_x may overwrite.
  if (call.attributes().Flag("grad_w")) {
    for (int64_t d = 0; d < W; ++d) {
      double sum = acc_w ? call.In(4 + acc)[d] : 0;
      for (int64_t i = d; i < T * D; i += W) sum += d_y_TD[i] * x_TD[i] * rstd_T[i / D];
      call.Out(1).Store(d, sum);
    }
  }
  for (int64_t t = 0; t < T; ++t) {
    const double rstd = rstd_T[t];
    double projection = 0;
    for (int64_t d = 0; d < D; ++d) projection += d_y_TD[t * D + d] * w_D[t * D + d] * x_TD[t * D + d] * rstd;
    projection /= D;
    for (int64_t d = 0; d < D; ++d) {
      const int64_t i = t * D + d;
      const double d_x = rstd * (d_y_TD[i] * w_D[i] - x_TD[i] * rstd * projection);
      d_x_TD.Store(i, d_x + (acc ? call.In(4)[i] : 0));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
