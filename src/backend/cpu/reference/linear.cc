// y = scale * (x w^T + x2 w2^T) + bias + acc (torch.nn.Linear keeps w as [out, in]) and its two gradients.
#include "backend/cpu/reference/call.h"
#include "graph/ops/linear_operands.h"

namespace temper::reference {

Status Linear(const Call& call) {
  const Operand x_TI = call.In(0), w_OI = call.In(1), y_TO = call.Out(0);
  const LinearOperands places(call.attributes());
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t T = x_TI.rows(), I = x_TI.columns(), O = w_OI.rows();
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t o = 0; o < O; ++o) {
      double dot = 0;
      for (int64_t i = 0; i < I; ++i) dot += x_TI[t * I + i] * w_OI[o * I + i];
      if (places.x2 >= 0) {
        const Operand x2_TR = call.In(places.x2), w2_OR = call.In(places.w2);
        const int64_t R = x2_TR.columns();
        for (int64_t r = 0; r < R; ++r) dot += x2_TR[t * R + r] * w2_OR[o * R + r];
      }
      double y = scale * dot;
      if (places.bias >= 0) y += call.In(places.bias)[o];
      if (places.acc >= 0) y += call.In(places.acc)[t * O + o];
      y_TO.Store(t * O + o, y);
    }
  }
  return OkStatus();
}

Status LinearDx(const Call& call) {
  const Operand d_y_TO = call.In(0), w_OI = call.In(1), d_x_TI = call.Out(0);
  const LinearOperands places(call.attributes());
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t T = d_y_TO.rows(), O = d_y_TO.columns(), I = w_OI.columns();
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < I; ++i) {
      double dot = 0;
      for (int64_t o = 0; o < O; ++o) dot += d_y_TO[t * O + o] * w_OI[o * I + i];
      if (places.x2 >= 0) {
        const Operand x2_TR = call.In(places.x2), w2_RI = call.In(places.w2);
        const int64_t R = x2_TR.columns();
        for (int64_t r = 0; r < R; ++r) dot += x2_TR[t * R + r] * w2_RI[r * I + i];
      }
      d_x_TI.Store(t * I + i, scale * dot + (places.acc >= 0 ? call.In(places.acc)[t * I + i] : 0));
    }
  }
  return OkStatus();
}

Status LinearDw(const Call& call) {
  const Operand d_y_TO = call.In(0), x_TI = call.In(1), d_w_OI = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t T = d_y_TO.rows(), O = d_y_TO.columns(), I = x_TI.columns();
  for (int64_t o = 0; o < O; ++o) {
    for (int64_t i = 0; i < I; ++i) {
      double dot = 0;
      for (int64_t t = 0; t < T; ++t) dot += d_y_TO[t * O + o] * x_TI[t * I + i];
      d_w_OI.Store(o * I + i, scale * dot + (acc ? call.In(2)[o * I + i] : 0));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
