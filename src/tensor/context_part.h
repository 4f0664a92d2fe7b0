// ContextPart: which tokens of every row a rank has when rows are dealt to the ranks of a context-parallel group (mesh
// axis cp). A row is cut into 2n chunks of equal length; rank i of n has chunks i and 2n-1-i, in this order, row after
// row. Under a causal mask a token late in a row costs more than an early one: dealt like this all ranks have the same
// work, also between any two of them. Pure data.
//
// A place is a token's index in whole rows, one after another; a local index counts a rank's own tokens in order. Local
// order is the order of places. constexpr: GPU kernels call it, too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace temper {

struct ContextPart {
  int64_t row = 0;               // tokens of a whole row; > 0, a multiple of 2 * ranks where ranks > 1
  int64_t ranks = 1, index = 0;  // one rank has whole rows

  constexpr int64_t chunks() const { return ranks > 1 ? 2 : 1; }  // per row, of this rank
  constexpr int64_t chunk() const { return row / (ranks * chunks()); }
  constexpr int64_t local_row() const { return row / ranks; }
  // Where in the row this rank's k-th chunk begins.
  constexpr int64_t chunk_begin(int64_t k) const { return (k == 0 ? index : 2 * ranks - 1 - index) * chunk(); }

  constexpr int64_t PlaceOf(int64_t local) const {
    const int64_t within = local % local_row();
    return local / local_row() * row + chunk_begin(within / chunk()) + within % chunk();
  }
  // Own tokens before `place`: the local index of the first at or after it.
  constexpr int64_t LocalFrom(int64_t place) const {
    const int64_t within = place % row;
    int64_t local = place / row * local_row();
    for (int64_t k = 0; k < chunks(); ++k) local += std::clamp<int64_t>(within - chunk_begin(k), 0, chunk());
    return local;
  }
  bool Has(int64_t place) const { return LocalFrom(place + 1) > LocalFrom(place); }

  // Whether rows of that length can be dealt to that many ranks.
  static bool Divides(int64_t row, int64_t ranks) {
    return row > 0 && ranks >= 1 && (ranks == 1 || (ranks <= row / 2 && row % (2 * ranks) == 0));
  }

  friend bool operator==(const ContextPart&, const ContextPart&) = default;
};

}  // namespace temper
