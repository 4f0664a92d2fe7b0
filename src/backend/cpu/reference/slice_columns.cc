// Columns of a matrix, and the way back.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status SliceColumns(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const int64_t begin = call.attributes().Int("begin"), D = x.columns(), C = y.columns();
  for (int64_t t = 0; t < y.rows(); ++t) {
    for (int64_t c = 0; c < C; ++c) y.Store(t * C + c, x[t * D + begin + c]);
  }
  return OkStatus();
}

Status SliceColumnsBackward(const Call& call) {
  const Operand d_y = call.In(0), d_x = call.Out(0);
  const Attributes& a = call.attributes();
  const bool acc = a.Flag("acc");
  const int64_t begin = a.Int("begin"), D = d_x.columns(), C = d_y.columns();
  for (int64_t t = 0; t < d_x.rows(); ++t) {
    for (int64_t d = 0; d < D; ++d) {
      const bool given = begin <= d && d < begin + C;
      d_x.Store(t * D + d, (acc ? call.In(1)[t * D + d] : 0) + (given ? d_y[t * C + d - begin] : 0));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
