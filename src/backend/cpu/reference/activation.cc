// relu(x) = max(x, 0), its square, gelu, clamp, and softcap, cap * tanh(x / cap).
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/gelu.h"

namespace temper::reference {

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

Status ReluSquared(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, x[i] < 0 ? 0 : x[i] * x[i]);
  return OkStatus();
}

// d_x = 2 x d_y where x > 0, else 0.
Status ReluSquaredBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), d_x = call.Out(0);
  for (int64_t i = 0; i < d_x.elements(); ++i) d_x.Store(i, x[i] > 0 ? 2 * x[i] * d_y[i] : 0);
  return OkStatus();
}

Status Gelu(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const bool tanh = call.attributes().Flag("tanh");
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, GeluOf(x[i], tanh));
  return OkStatus();
}

Status GeluBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), d_x = call.Out(0);
  const bool tanh = call.attributes().Flag("tanh");
  for (int64_t i = 0; i < d_x.elements(); ++i) d_x.Store(i, d_y[i] * GeluSlope(x[i], tanh));
  return OkStatus();
}

// NaN passes.
Status Clamp(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const double limit = call.attributes().Double("limit");
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, std::clamp(x[i], -limit, limit));
  return OkStatus();
}

// The bounds themselves pass the gradient, as torch's clamp.
Status ClampBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), d_x = call.Out(0);
  const double limit = call.attributes().Double("limit");
  for (int64_t i = 0; i < d_x.elements(); ++i) d_x.Store(i, std::fabs(x[i]) > limit ? 0 : d_y[i]);
  return OkStatus();
}

Status Softcap(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const double cap = call.attributes().Double("cap");
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, cap * std::tanh(x[i] / cap));
  return OkStatus();
}

}  // namespace temper::reference
