// relu(x) = max(x, 0), and gelu(x) = x * Phi(x): exact by erf, or the tanh approximation ("gelu_new",
// "gelu_pytorch_tanh").
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// tanh(z) with z = sqrt(2/pi) * (x + 0.044715 x^3): Hendrycks and Gimpel 2016.
constexpr double kCubic = 0.044715;
const double kRootTwoOverPi = std::sqrt(2 / M_PI);

// (1 + tanh z) / 2 without the cancellation of 1 + tanh z for negative z.
double HalfOnePlusTanh(double z) {
  return 1 / (1 + std::exp(-2 * z));
}

}  // namespace

// NaN passes: max(NaN, 0) is NaN as in torch.
Status Relu(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, x[i] < 0 ? 0 : x[i]);
  return OkStatus();
}

// d_x = d_y where y > 0, else 0 (torch's threshold_backward; 0 at the kink).
Status ReluBackward(const Call& call) {
  const Operand d_y = call.In(0), y = call.In(1), d_x = call.Out(0);
  for (int64_t i = 0; i < d_x.elements(); ++i) d_x.Store(i, y[i] > 0 ? d_y[i] : 0);
  return OkStatus();
}

Status Gelu(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const bool tanh = call.attributes().Flag("tanh");
  for (int64_t i = 0; i < y.elements(); ++i) {
    const double a = x[i];
    if (tanh) {
      y.Store(i, a * HalfOnePlusTanh(kRootTwoOverPi * (a + kCubic * a * a * a)));
    } else {
      y.Store(i, a / 2 * std::erfc(-a * M_SQRT1_2));  // 1 + erf(z) without its cancellation for z < 0
    }
  }
  return OkStatus();
}

// erf: Phi(x) + x phi(x). tanh: (1 + th)/2 + x/2 (1 - th^2) z'(x).
Status GeluBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), d_x = call.Out(0);
  const bool tanh = call.attributes().Flag("tanh");
  for (int64_t i = 0; i < d_x.elements(); ++i) {
    const double a = x[i];
    double slope;
    if (tanh) {
      const double z = kRootTwoOverPi * (a + kCubic * a * a * a);
      const double p = HalfOnePlusTanh(z), q = HalfOnePlusTanh(-z);  // 1 - tanh^2 = 4 p q
      slope = p + a * 2 * p * q * kRootTwoOverPi * (1 + 3 * kCubic * a * a);
    } else {
      slope = std::erfc(-a * M_SQRT1_2) / 2 + a * std::exp(-a * a / 2) / std::sqrt(2 * M_PI);
    }
    d_x.Store(i, d_y[i] * slope);
  }
  return OkStatus();
}

}  // namespace temper::reference
