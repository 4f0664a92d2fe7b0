// DrawPlaces: the places in the batch by which ops draw numbers for a rank's tokens (graph/ops/draws.h). Rows that are
// shorter than those of the run's other micro-batches are numbered as if they were as long, so that a token draws the
// same in both. constexpr: GPU kernels call it, too.
#pragma once

#include "graph/ops/context_attributes.h"

namespace temper {

struct DrawPlaces {
  ContextPart part;
  int64_t drawn_row = 0;  // tokens from a row's first to the next one's; 0: as many as the row has

  constexpr bool in_order() const { return part.ranks == 1 && drawn_row == 0; }
  constexpr int64_t PlaceOf(int64_t local) const {
    const int64_t place = part.PlaceOf(local);
    return drawn_row == 0 ? place : place / part.row * drawn_row + place % part.row;
  }
};

inline DrawPlaces DrawPlacesOf(const Attributes& a) {
  return {.part = ContextPartOf(a, "packed_row"), .drawn_row = a.IntOr("drawn_row", 0)};
}

// Whether no place of `tokens` local tokens overflows, and rows lie apart.
inline bool GoodDrawPlaces(const Attributes& a, int64_t tokens) {
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  const int64_t row = a.IntOr("packed_row", 0), drawn = a.IntOr("drawn_row", row);
  if (drawn < row || drawn > kMostTokens) return false;
  if (a.Has("ranks")) return GoodContext(a, "packed_row", tokens) && tokens / row <= kMostTokens / drawn;
  return a.Has("drawn_row") && !a.Has("index") && row > 0 && tokens / row <= kMostTokens / drawn;
}

}  // namespace temper
