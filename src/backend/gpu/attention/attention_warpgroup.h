// Shared by the kernels of attention on Hopper's warpgroups: bf16, heads of up to 128 elements. A
// block has two warpgroups with 64 rows (queries or keys) of one head each. The tiles that these
// are multiplied with pass through two or three places in shared memory: one is used while the
// next is copied. So one barrier per tile is enough, at which every thread says that its part of
// the next tile has arrived, and that its products with the tile before the last are done.
//
// Scores and sums are f32; p and d_s are rounded to bf16 before their products, as on the CPU.
#pragma once

#include "backend/gpu/attention/attention_matrix.h"
#include "backend/gpu/units/warpgroup_unit.h"

namespace temper::gpu {

// As MakeMatrixAttention, where the stream's GPU has such units; nullptr elsewhere.
template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads& heads, const Sees& sees, bool acc, const Context& context,
                                               Faults::Word* fault);
template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads& heads, const Sees& sees, bool acc,
                                                       const Context& context);

#if TEMPER_WGMMA

inline constexpr int kWarpgroupThreads = 2 * kWarpgroup;
inline constexpr int kBlockRows = 2 * kWarpgroupRows;

inline bool FitsWarpgroups(const Heads& heads, const Context& context) {
  return HasWgmma(context.stream) && FitsMatrixTiles(heads);
}
// The first row of this thread's warp, in a block whose rows begin at `begin`.
__device__ __forceinline__ int WarpRow(int begin) {
  return begin + static_cast<int>(threadIdx.x) / Mma::kLanes * Mma::kRows;
}

// Starts to copy rows [first, first + Tile::kRows) of head h of x_T(H*E), zeros from `end` on.
template <class Tile>
__device__ __forceinline__ void CopyRows(const bf16* x, int64_t first, int64_t end, int64_t heads, int64_t h, int64_t E,
                                         Shared<Bf16Bits> window, Tile tile) {
  constexpr int kChunks = Tile::kE / 8;                 // of 16 bytes, of a row
  constexpr int kAtOnce = kWarpgroupThreads / kChunks;  // rows
  static_assert(Tile::kRows % kAtOnce == 0 && kAtOnce % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks, e = static_cast<int>(threadIdx.x) % kChunks * 8;
  const bf16* from = x + ((first + row) * heads + h) * E + e;
  TEMPER_UNROLL
  for (int n = 0; n < Tile::kRows; n += kAtOnce) {
    const bool there = first + row + n < end && e < E;
    CopyBeside(there ? from : x, there, window, tile.Place(row + n, e));
    from += kAtOnce * heads * E;
  }
}

// Waits until all copies have arrived and all products are done, for every thread.
__device__ __forceinline__ void MeetAtTile() {
  AwaitCopies<0>();
  FenceTiles();
  __syncthreads();
}

// A group of products: scores = the 64 rows of `left` from `row` on times all of `right`, transposed.
template <class Left, class Right>
__device__ __forceinline__ void StartScores(Shared<Bf16Bits> window, Left left, int row, Right right,
                                            FragmentC (&scores)[Right::kRows / 8]) {
  TEMPER_UNROLL
  for (int e = 0; e < Left::kE; e += 16) MultiplyRows(window, left, row, right, e, /*add=*/e > 0, scores);
  CloseProducts();
}

// Another: out += weights times `right`.
template <class Right>
__device__ __forceinline__ void StartWeighted(Shared<Bf16Bits> window, const FragmentA (&weights)[Right::kRows / 16],
                                              Right right, FragmentC (&out)[Right::kE / 8]) {
  TEMPER_UNROLL
  for (int row = 0; row < Right::kRows; row += 16) MultiplyWeights(window, weights[row / 16], right, row, out);
  CloseProducts();
}

template <int kColumns>
__device__ __forceinline__ void PackWeights(const FragmentC (&x)[kColumns], FragmentA (&packed)[kColumns / 2]) {
  TEMPER_UNROLL
  for (int i = 0; i < kColumns / 2; ++i) packed[i] = AsOperand(x + i * 2);
}

#endif

}  // namespace temper::gpu
