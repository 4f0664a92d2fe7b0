#include "graph/ops/routed_rows.h"

#include <fmt/core.h>

namespace temper {

Status CheckPlaces(const int32_t* place_N, int64_t N, int64_t P) {
  for (int64_t i = 0; i < N; ++i) {
    if (place_N[i] < 0 || place_N[i] >= P) {
      return Corrupt(fmt::format("choice {} of a token is placed in row {} of {}", i, place_N[i], P));
    }
  }
  return OkStatus();
}

Status FindExpertRows(const int32_t* expert_P, int64_t P, int64_t experts, int32_t* first_E1) {
  int64_t next = 0;  // the expert whose first row is to be found
  for (int64_t p = 0; p < P; ++p) {
    const int64_t e = expert_P[p];
    if (e < next - 1 || e < 0 || e >= experts) {
      return Corrupt(fmt::format("row {} of {} is of expert {}: rows should be sorted by expert, of which there are {}",
                                 p, P, e, experts));
    }
    while (next <= e) first_E1[next++] = static_cast<int32_t>(p);
  }
  while (next <= experts) first_E1[next++] = static_cast<int32_t>(P);
  return OkStatus();
}

}  // namespace temper
