// Inverted dropout: element i of the batch survives iff its uniform draw is >= p, and is scaled by 1 / (1 - p). The
// draws are those of (seed, name, step, i), so the backward pass is the same op on the gradient and no mask is stored.
// The value may be a part of the batch's: see graph/ops/dropout.cc.
#include "backend/cpu/reference/call.h"
#include "base/philox.h"
#include "graph/ops/context_attributes.h"

namespace temper::reference {

Status Dropout(const Call& call) {
  const Operand x = call.In(0), rng_3 = call.In(1), y = call.Out(0);
  const Attributes& a = call.attributes();
  const double p = a.Double("p");
  const RngKey key{.seed = static_cast<uint64_t>(rng_3.Int(kRngSeed)),
                   .name_hash = call.rng_name_hash(),
                   .step = static_cast<uint64_t>(rng_3.Int(kRngStep))};
  const int64_t C = y.columns();
  const auto columns = static_cast<uint64_t>(a.IntOr("columns", C)),
             column = static_cast<uint64_t>(a.IntOr("column", 0));
  const auto first_token = static_cast<uint64_t>(rng_3.Int(kRngFirstToken));
  const int64_t row = a.IntOr("row", 0);
  const ContextPart part = ContextPartOf(a, "packed_row");
  for (int64_t t = 0; t < y.rows(); ++t) {
    const uint64_t first = (first_token + static_cast<uint64_t>(part.PlaceOf(row + t))) * columns + column;
    for (int64_t c = 0; c < C; ++c) {
      const bool kept = UniformAt(key, first + static_cast<uint64_t>(c)) >= p;
      y.Store(t * C + c, kept ? x[t * C + c] / (1 - p) : 0);
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
