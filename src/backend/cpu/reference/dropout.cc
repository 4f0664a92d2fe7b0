// Inverted dropout: element i of the batch survives iff its uniform draw is >= p, and is scaled by 1 / (1 - p). The
// draws are those of (seed, name, step, i), so the backward pass is the same op on the gradient and no mask is stored.
#include "backend/cpu/reference/draws.h"

namespace temper::reference {

Status Dropout(const Call& call) {
  const double p = call.attributes().Double("p");
  StoreDrawn(call, [p](double x, double u) { return u >= p ? x / (1 - p) : 0; });
  return OkStatus();
}

}  // namespace temper::reference
