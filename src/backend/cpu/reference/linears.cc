// y_n = scale * x w_n^T for all n, and its two gradients.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Linears(const Call& call) {
  const Operand x_TI = call.In(0);
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t T = x_TI.rows(), I = x_TI.columns();
  for (int n = 0; n < call.num_outputs(); ++n) {
    const Operand w_OI = call.In(1 + n), y_TO = call.Out(n);
    const int64_t O = w_OI.rows();
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t o = 0; o < O; ++o) {
        double dot = 0;
        for (int64_t i = 0; i < I; ++i) dot += x_TI[t * I + i] * w_OI[o * I + i];
        y_TO.Store(t * O + o, scale * dot);
      }
    }
  }
  return OkStatus();
}

Status LinearsDx(const Call& call) {
  const Operand d_x_TI = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const int64_t T = d_x_TI.rows(), I = d_x_TI.columns();
  const int count = call.num_inputs() / 2;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < I; ++i) {
      double sum = acc ? call.In(2 * count)[t * I + i] : 0;
      for (int n = 0; n < count; ++n) {
        const Operand d_y_TO = call.In(n), w_OI = call.In(count + n);
        const int64_t O = d_y_TO.columns();
        for (int64_t o = 0; o < O; ++o) sum += d_y_TO[t * O + o] * w_OI[o * I + i];
      }
      d_x_TI.Store(t * I + i, sum);
    }
  }
  return OkStatus();
}

Status LinearsDw(const Call& call) {
  const int count = call.num_outputs();
  const Operand x_TI = call.In(count);
  const bool acc = call.attributes().Flag("acc");
  const int64_t T = x_TI.rows(), I = x_TI.columns();
  for (int n = 0; n < count; ++n) {
    const Operand d_y_TO = call.In(n), d_w_OI = call.Out(n);
    const int64_t O = d_y_TO.columns();
    for (int64_t o = 0; o < O; ++o) {
      for (int64_t i = 0; i < I; ++i) {
        double sum = acc ? call.In(count + 1 + n)[o * I + i] : 0;
        for (int64_t t = 0; t < T; ++t) sum += d_y_TO[t * O + o] * x_TI[t * I + i];
        d_w_OI.Store(o * I + i, sum);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
