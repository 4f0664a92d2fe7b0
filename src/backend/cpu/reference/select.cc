// One matrix of a stack of them, and the gradient of the stack from that of the matrix.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Select(const Call& call) {
  const Operand w_EOI = call.In(0), w_OI = call.Out(0);
  for (int64_t i = 0, first = call.attributes().Int("index") * w_OI.elements(); i < w_OI.elements(); ++i) {
    w_OI.Store(i, w_EOI[first + i]);
  }
  return OkStatus();
}

Status SelectBackward(const Call& call) {
  const Operand d_OI = call.In(0), d_w_EOI = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const int64_t n = d_OI.elements(), first = call.attributes().Int("index") * n;
  for (int64_t i = 0; i < d_w_EOI.elements(); ++i) {
    const bool selected = i >= first && i < first + n;
    d_w_EOI.Store(i, (acc ? call.In(1)[i] : 0) + (selected ? d_OI[i - first] : 0));
  }
  return OkStatus();
}

}  // namespace temper::reference
