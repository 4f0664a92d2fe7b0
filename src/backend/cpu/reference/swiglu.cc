// SwiGLU (Shazeer 2020): h = silu(gate) * up, silu(x) = x * sigmoid(x).
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

Status Swiglu(const Call& call) {
  const Operand gate = call.In(0), up = call.In(1), h = call.Out(0);
  for (int64_t i = 0; i < h.elements(); ++i) h.Store(i, gate[i] * Sigmoid(gate[i]) * up[i]);
  return OkStatus();
}

// silu'(x) = s * (1 + x * (1 - s)) with s = sigmoid(x).
Status SwigluBackward(const Call& call) {
  const Operand d_h = call.In(0), gate = call.In(1), up = call.In(2), d_gate = call.Out(0), d_up = call.Out(1);
  for (int64_t i = 0; i < d_h.elements(); ++i) {
    const double d = d_h[i], x = gate[i], u = up[i], s = Sigmoid(x);
    d_gate.Store(i, d * u * s * (1 + x * (1 - s)));
    d_up.Store(i, d * x * s);
  }
  return OkStatus();
}

}  // namespace temper::reference
