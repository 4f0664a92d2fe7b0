// Inverted dropout: element i of the batch survives iff its uniform draw is >= p, and is scaled by 1 / (1 - p). The
// draws are those of (seed, name, step, i), so the backward pass is the same op on the gradient and no mask is stored.
#include "backend/cpu/reference/call.h"
#include "base/philox.h"

namespace temper::reference {

Status Dropout(const Call& call) {
  const Operand x = call.In(0), rng_3 = call.In(1), y = call.Out(0);
  const double p = call.attributes().Double("p");
  const RngKey key{.seed = static_cast<uint64_t>(rng_3.Int(kRngSeed)),
                   .name_hash = call.rng_name_hash(),
                   .step = static_cast<uint64_t>(rng_3.Int(kRngStep))};
  const int64_t first = rng_3.Int(kRngFirstToken) * y.columns();
  for (int64_t i = 0; i < y.elements(); ++i) {
    y.Store(i, UniformAt(key, static_cast<uint64_t>(first + i)) >= p ? x[i] / (1 - p) : 0);
  }
  return OkStatus();
}

}  // namespace temper::reference
