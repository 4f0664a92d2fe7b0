// The uniform draws of an op's elements, by their places in the batch (graph/ops/draws.h).
#pragma once

#include "backend/cpu/reference/call.h"
#include "base/philox.h"
#include "graph/ops/draw_places.h"

namespace temper::reference {

// Stores body(x_i, u_i) for every element; x is input 0 and rng input 1.
template <class Body>
void StoreDrawn(const Call& call, const Body& body) {
  const Operand x = call.In(0), rng_3 = call.In(1), y = call.Out(0);
  const Attributes& a = call.attributes();
  const RngKey key{.seed = static_cast<uint64_t>(rng_3.Int(kRngSeed)),
                   .name_hash = call.rng_name_hash(),
                   .step = static_cast<uint64_t>(rng_3.Int(kRngStep))};
  const int64_t C = y.columns();
  const auto columns = static_cast<uint64_t>(a.IntOr("columns", C)),
             column = static_cast<uint64_t>(a.IntOr("column", 0));
  const auto first_token = static_cast<uint64_t>(rng_3.Int(kRngFirstToken));
  const int64_t row = a.IntOr("row", 0);
  const DrawPlaces places = DrawPlacesOf(a);
  for (int64_t t = 0; t < y.rows(); ++t) {
    const uint64_t first = (first_token + static_cast<uint64_t>(places.PlaceOf(row + t))) * columns + column;
    for (int64_t c = 0; c < C; ++c) {
      y.Store(t * C + c, body(x[t * C + c], UniformAt(key, first + static_cast<uint64_t>(c))));
    }
  }
}

}  // namespace temper::reference
