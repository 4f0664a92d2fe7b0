// Which scores of a warp count: those of keys that their query sees (attention_sees.h). A warp holds them as sums of U,
// a matrix unit (warp_matrix.h): queries by keys (SeenKeys) or keys by queries (SeenPlaces); those that do not count
// become -infinity. Most tiles have none of these, which a check of their first and last rows shows.
#pragma once

#include "backend/gpu/attention/attention_sees.h"
#include "backend/gpu/units/warp_matrix.h"

namespace temper::gpu {

// Tokens are counted in 32 bits here, as document starts are: registers are short.

// Which keys a warp's queries see: neither the first key nor the last decreases from query to query.
template <class U>
struct SeenKeys {
  int first[U::kHeldRows], end[U::kHeldRows];  // by this lane's queries; for rows that are no query, no key
  int begin, any_end;                          // by any query of the block
  int all_from, all_to;                        // by all of the warp

  // The block's queries are [q_begin, q_end), the warp's begin at `warp_begin`.
  template <class Sees>
  __device__ __forceinline__ SeenKeys(const Heads& heads, const Sees& sees, const int* document_start_T, int q_begin,
                                      int q_end, int warp_begin, int lane) {
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      const int t = warp_begin + U::Row(lane, i);
      first[i] = static_cast<int>(t < q_end ? sees.First(heads, document_start_T, t) : 0);
      end[i] = static_cast<int>(t < q_end ? sees.End(t) : 0);
    }
    begin = static_cast<int>(sees.First(heads, document_start_T, q_begin));
    any_end = static_cast<int>(sees.End(q_end - 1));
    all_from = static_cast<int>(sees.First(heads, document_start_T, q_end - 1));
    all_to = warp_begin < q_end ? static_cast<int>(sees.End(warp_begin)) : any_end;
  }
  // Of keys, `rows` at a time.
  __device__ __forceinline__ int Tiles(int rows) const {
    return begin < any_end ? (any_end - begin + rows - 1) / rows : 0;
  }
  // Whether all of the warp's queries see all of the `keys` from `s_begin` on.
  __device__ __forceinline__ bool All(int s_begin, int keys) const {
    return s_begin >= all_from && s_begin + keys <= all_to;
  }
  // Scores of keys from `s_begin` on.
  template <int kTiles>
  __device__ __forceinline__ void Mask(int s_begin, int lane, typename U::C (&score)[kTiles]) const {
    const int s_lane = s_begin + U::Column(lane, 0);
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        const int s = s_lane + n * U::kColumns + U::Column(0, i), held = U::HeldRow(i);
        if (s < first[held] || s >= end[held]) score[n].x[i] = -INFINITY;
      }
    }
  }
};

// The places of keys that a query sees; none for rows that are no query.
struct SeenPlaces {
  int first, last;

  template <class Sees>
  __device__ __forceinline__ static SeenPlaces Of(const Heads& heads, const Sees& sees, const int* document_start_T,
                                                  int t) {
    if (t >= heads.tokens) return {0, -1};
    return {static_cast<int>(sees.FirstPlace(heads, document_start_T, t)), static_cast<int>(sees.PlaceOf(t))};
  }
};

// Whether `queries`, whose visible places start at seen[at], all see `keys`, whose places start at `places`.
__device__ __forceinline__ bool AllSee(Shared<SeenPlaces> seen, int at, int queries, Shared<int> places, int keys) {
  const SeenPlaces by_first = seen[at], by_last = seen[at + queries - 1];
  const int first = places[0], last = places[keys - 1];
  return by_first.last >= last && by_last.first <= first && by_last.last >= 0;
}
// Scores of keys whose places are from places[row] on, for queries whose visible places are from seen[at] on. There are
// also some after the last key, of which nothing is stored.
template <class U, int kTiles>
__device__ __forceinline__ void MaskKeys(Shared<SeenPlaces> seen, int at, Shared<int> places, int row, int lane,
                                         typename U::C (&score)[kTiles]) {
  int place[U::kHeldRows];
  TEMPER_UNROLL
  for (int i = 0; i < U::kHeldRows; ++i) place[i] = places[row + U::Row(lane, i)];
  TEMPER_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    TEMPER_UNROLL
    for (int i = 0; i < U::kSums; ++i) {
      const SeenPlaces of = seen[at + n * U::kColumns + U::Column(lane, i)];
      if (place[U::HeldRow(i)] < of.first || place[U::HeldRow(i)] > of.last) score[n].x[i] = -INFINITY;
    }
  }
}

// How many tiles of `rows` queries from `q_first` on see any of the keys before `k_end`. Later queries see no earlier
// keys.
template <class Sees>
__device__ __forceinline__ int TilesThatSee(const Heads& heads, const Sees& sees, const int* document_start_T,
                                            int q_first, int k_end, int rows) {
  int low = 0, high = q_first < heads.tokens ? static_cast<int>((heads.tokens - q_first + rows - 1) / rows) : 0;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sees.First(heads, document_start_T, q_first + int64_t{middle} * rows) < k_end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace temper::gpu
