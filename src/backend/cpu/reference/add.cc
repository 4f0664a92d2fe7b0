// Elementwise a + b; a vector b is added to every row of a.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Add(const Call& call) {
  const Operand a = call.In(0), b = call.In(1), y = call.Out(0);
  const int64_t period = b.elements();
  for (int64_t i = 0; i < y.elements(); ++i) y.Store(i, a[i] + b[i % period]);
  return OkStatus();
}

}  // namespace temper::reference
