// Noise, uniform in [-magnitude, magnitude), on every element.
#include "backend/cpu/reference/draws.h"

namespace temper::reference {

Status Noise(const Call& call) {
  const double magnitude = call.attributes().Double("magnitude");
  StoreDrawn(call, [magnitude](double x, double u) { return x + magnitude * (2 * u - 1); });
  return OkStatus();
}

}  // namespace temper::reference
