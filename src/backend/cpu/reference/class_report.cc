#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status ClassReport(const Call& call) {
  const Operand logits = call.In(0), label = call.In(1);
  const int64_t classes = logits.columns();
  for (int64_t t = 0; t < logits.rows(); ++t) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (logits[t * classes + c] > logits[t * classes + best]) best = c;
    }
    const bool judged = label.Int(t) >= 0;
    call.Out(0).Store(t, judged ? static_cast<double>(best) : -1);
    call.Out(1).Store(t, judged && label.Int(t) == best ? 1 : 0);
  }
  return OkStatus();
}

}  // namespace temper::reference
