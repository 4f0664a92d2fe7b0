// factor * x, elementwise; the factor is an attribute, or stored.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Scale(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const double factor = call.attributes().Double("factor");
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, factor * x[i]);
  return OkStatus();
}

Status ScaleBy(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const double factor = call.In(1)[0];
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, factor * x[i]);
  return OkStatus();
}

}  // namespace temper::reference
