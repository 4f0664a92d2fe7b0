// A gated linear unit (Shazeer 2020): h = activation(gate) * up; silu(x) = x * sigmoid(x), gelu, sigmoid or identity.
// Of clamped pairs h = g * sigmoid(alpha * g) * (u + 1).
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/gelu.h"
#include "backend/cpu/reference/logistic.h"

namespace temper::reference {
namespace {

class Activation {
 public:
  explicit Activation(const Attributes& a)
      : gelu_(a.Flag("gelu")), tanh_(a.Flag("tanh")), sigmoid_(a.Flag("sigmoid")), identity_(a.Flag("identity")) {}
  double Of(double x) const {
    if (identity_) return x;
    if (sigmoid_) return Sigmoid(x);
    return gelu_ ? GeluOf(x, tanh_) : x * Sigmoid(x);
  }
  // silu'(x) = s * (1 + x * (1 - s)) with s = sigmoid(x).
  double Slope(double x) const {
    if (identity_) return 1;
    if (sigmoid_) return Sigmoid(x) * Sigmoid(-x);
    return gelu_ ? GeluSlope(x, tanh_) : Sigmoid(x) * (1 + x * (1 - Sigmoid(x)));
  }

 private:
  const bool gelu_, tanh_, sigmoid_, identity_;
};

// g and u of a pair. A NaN passes.
struct ClampedPair {
  ClampedPair(const Operand& pairs, int64_t i, double limit)
      : g(pairs[2 * i] > limit ? limit : pairs[2 * i]), u(pairs[2 * i + 1]) {
    if (u > limit) u = limit;
    if (u < -limit) u = -limit;
    passes_g = !(pairs[2 * i] > limit);
    passes_u = !(pairs[2 * i + 1] > limit) && !(pairs[2 * i + 1] < -limit);
  }
  double g, u;
  bool passes_g, passes_u;  // gradients
};

Status ClampedGlu(const Call& call) {
  const Operand pairs = call.In(0), h = call.Out(0);
  const double alpha = call.attributes().Double("alpha"), limit = call.attributes().Double("limit");
  for (int64_t i = 0; i < h.elements(); ++i) {
    const ClampedPair pair(pairs, i, limit);
    h.Store(i, pair.g * Sigmoid(alpha * pair.g) * (pair.u + 1));
  }
  return OkStatus();
}

// Of g * s with s = sigmoid(alpha * g): s * (1 + alpha * g * (1 - s)).
Status ClampedGluBackward(const Call& call) {
  const Operand d_h = call.In(0), pairs = call.In(1), d_pairs = call.Out(0);
  const double alpha = call.attributes().Double("alpha"), limit = call.attributes().Double("limit");
  for (int64_t i = 0; i < d_h.elements(); ++i) {
    const ClampedPair pair(pairs, i, limit);
    const double s = Sigmoid(alpha * pair.g), d = d_h[i];
    const double slope = s * (1 + alpha * pair.g * Sigmoid(-alpha * pair.g));
    d_pairs.Store(2 * i, pair.passes_g ? d * (pair.u + 1) * slope : 0);
    d_pairs.Store(2 * i + 1, pair.passes_u ? d * pair.g * s : 0);
  }
  return OkStatus();
}

}  // namespace

Status Glu(const Call& call) {
  if (call.attributes().Flag("clamped")) return ClampedGlu(call);
  const Operand gate = call.In(0), up = call.In(1), h = call.Out(0);
  const Activation activation(call.attributes());
  for (int64_t i = 0; i < h.elements(); ++i) h.Store(i, activation.Of(gate[i]) * up[i]);
  return OkStatus();
}

Status GluBackward(const Call& call) {
  if (call.attributes().Flag("clamped")) return ClampedGluBackward(call);
  const Operand d_h = call.In(0), gate = call.In(1), up = call.In(2), d_gate = call.Out(0), d_up = call.Out(1);
  const Activation activation(call.attributes());
  for (int64_t i = 0; i < d_h.elements(); ++i) {
    const double d = d_h[i], x = gate[i];
    d_gate.Store(i, d * up[i] * activation.Slope(x));
    d_up.Store(i, d * activation.Of(x));
  }
  return OkStatus();
}

}  // namespace temper::reference
