// y = logistic(gate) * x, head by head; d_gate is a sum over the head.
#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"

namespace temper::reference {

Status GateHeads(const Call& call) {
  const Operand x = call.In(0), gate = call.In(1), y = call.Out(0);
  const int64_t heads = gate.rows() * gate.columns(), E = x.columns() / gate.columns();
  for (int64_t h = 0; h < heads; ++h) {
    const double scale = Sigmoid(gate[h]);
    for (int64_t e = 0; e < E; ++e) y.Store(h * E + e, scale * x[h * E + e]);
  }
  return OkStatus();
}

Status GateHeadsBackward(const Call& call) {
  const Operand d_y = call.In(0), x = call.In(1), gate = call.In(2), d_x = call.Out(0), d_gate = call.Out(1);
  const int64_t heads = gate.rows() * gate.columns(), E = x.columns() / gate.columns();
  for (int64_t h = 0; h < heads; ++h) {
    const double scale = Sigmoid(gate[h]);
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) {
      d_x.Store(h * E + e, scale * d_y[h * E + e]);
      sum += d_y[h * E + e] * x[h * E + e];
    }
    d_gate.Store(h, scale * (1 - scale) * sum);
  }
  return OkStatus();
}

}  // namespace temper::reference
