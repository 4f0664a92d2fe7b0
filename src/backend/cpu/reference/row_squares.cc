// ||w + scale * b a||^2 - ||w||^2 + acc of each row of w, by the sum's own definition: the product's terms, squared.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status RowSquares(const Call& call) {
  const Operand a_RI = call.In(0), w_OI = call.In(1), b_OR = call.In(2), q_O = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const double scale = call.attributes().Double("scale");
  const int64_t R = a_RI.rows(), I = a_RI.columns();
  for (int64_t o = 0; o < b_OR.rows(); ++o) {
    double more = 0;
    for (int64_t i = 0; i < I; ++i) {
      double delta = 0;
      for (int64_t r = 0; r < R; ++r) delta += b_OR[o * R + r] * a_RI[r * I + i];
      delta *= scale;
      more += delta * (2 * w_OI[o * I + i] + delta);
    }
    q_O.Store(o, more + (acc ? call.In(3)[o] : 0));
  }
  return OkStatus();
}

}  // namespace temper::reference
