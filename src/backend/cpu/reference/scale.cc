// factor * x, elementwise.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Scale(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const double factor = call.attributes().Double("factor");
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, factor * x[i]);
  return OkStatus();
}

}  // namespace temper::reference
