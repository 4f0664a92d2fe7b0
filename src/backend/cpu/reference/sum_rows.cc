// The gradient of a bias: column sums of d_y.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status SumRows(const Call& call) {
  const Operand d_y_TO = call.In(0), d_b_O = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const int64_t O = d_y_TO.columns();
  for (int64_t o = 0; o < O; ++o) {
    double sum = acc ? call.In(1)[o] : 0;
    for (int64_t t = 0; t < d_y_TO.rows(); ++t) sum += d_y_TO[t * O + o];
    d_b_O.Store(o, sum);
  }
  return OkStatus();
}

}  // namespace temper::reference
