// What the kernels of attention on Hopper's warpgroups share: bf16, heads of up to 128 elements. A block has two
// warpgroups with 64 rows (queries or keys) of one head each; what these meet comes by, tile after tile, through two
// places or three in shared memory: one is worked on while the next is copied. So a barrier per tile is enough, at
// which every thread says that its part of the next tile has come, and that its products with the one before the last
// are done.
//
// Scores and sums are f32; p and d_s are rounded to bf16 before their products, as on the CPU.
#pragma once

#include "backend/gpu/attention_matrix.h"
#include "backend/gpu/attention_sees.h"
#include "backend/gpu/warpgroup_unit.h"

namespace temper::gpu {

// Made where the stream's GPU has such units; nullptr elsewhere. `fault`: as in attention.cu; taken by what is made.
// `acc`: with what the steps before gave.
std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads& heads, const Context& context, Faults::Word* fault);
std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads& heads, const Context& context);
std::unique_ptr<Kernel> MakeWarpgroupAttentionStep(const Heads& heads, const Dealt& dealt, bool acc,
                                                   const Context& context, Faults::Word* fault);
std::unique_ptr<Kernel> MakeWarpgroupAttentionStepBackward(const Heads& heads, const Dealt& dealt, bool acc,
                                                           const Context& context);

#if TEMPER_WGMMA

inline constexpr int kWarpgroupThreads = 2 * kWarpgroup;
inline constexpr int kBlockRows = 2 * kWarpgroupRows;

// Their largest is found before scores are scaled, which must keep their order.
inline bool FitsWarpgroups(const Heads& heads, const Context& context) {
  return HasWgmma(context.stream) && FitsMatrixTiles(heads) && heads.scale > 0;
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

// All that was copied is there, and all that was multiplied is done, of every thread.
__device__ __forceinline__ void MeetAtTile() {
  AwaitCopies<0>();
  FenceTiles();
  __syncthreads();
}

// Which keys the queries of a block see: of later queries neither the first key nor the last comes earlier.
struct SeenKeys {
  int first[2], end[2];      // by this lane's two queries; of what is none, no key
  int64_t begin, any_end;    // by any query of the block
  int64_t all_from, all_to;  // by all of this warpgroup

  template <class Sees>
  __device__ __forceinline__ SeenKeys(const Heads& heads, const Sees& sees, const int* document_start_T,
                                      int64_t q_begin, int64_t q_end, int in_block) {
    TEMPER_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t t = q_begin + in_block + i * 8;
      first[i] = static_cast<int>(t < q_end ? sees.First(heads, document_start_T, t) : 0);
      end[i] = static_cast<int>(t < q_end ? sees.End(t) : 0);
    }
    begin = sees.First(heads, document_start_T, q_begin);
    any_end = sees.End(q_end - 1);
    all_from = sees.First(heads, document_start_T, q_end - 1);
    const int64_t first_query = q_begin + in_block / kWarpgroupRows * kWarpgroupRows;
    all_to = first_query < q_end ? sees.End(first_query) : any_end;
  }
  __device__ __forceinline__ int Tiles(int rows) const {
    return begin < any_end ? static_cast<int>((any_end - begin + rows - 1) / rows) : 0;
  }
  // Scores of keys from `s_begin` on that their query does not see become -infinity.
  template <int kTiles>
  __device__ __forceinline__ void Mask(int64_t s_begin, int lane, FragmentC (&score)[kTiles]) const {
    if (s_begin >= all_from && s_begin + kTiles * 8 <= all_to) return;
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int s = static_cast<int>(s_begin) + n * 8 + lane % 4 * 2 + i % 2;
        if (s < first[i / 2] || s >= end[i / 2]) score[n].x[i] = -INFINITY;
      }
    }
  }
};

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

// Row `row` (kHalf 0) or `row` + 8 (1) of head h of y_T(H*E), this lane's elements: y = factor x, + before where there
// is one.
template <int kHalf, class R, int kColumns>
__device__ __forceinline__ void StoreSums(const FragmentC (&x)[kColumns], float factor, const float* before,
                                          int64_t row, int64_t heads, int64_t h, int64_t E, int lane, R* y) {
  TEMPER_UNROLL
  for (int column = 0; column < kColumns; ++column) {
    const int64_t e = column * 8 + lane % 4 * 2;
    if (e >= E) continue;
    const int64_t at = ((row + kHalf * 8) * heads + h) * E + e;
    float pair[2] = {x[column].x[kHalf * 2] * factor, x[column].x[kHalf * 2 + 1] * factor};
    if (before != nullptr) {
      pair[0] = Fma(x[column].x[kHalf * 2], factor, before[at]);
      pair[1] = Fma(x[column].x[kHalf * 2 + 1], factor, before[at + 1]);
    }
    Store(y + at, pair);
  }
}

#endif

}  // namespace temper::gpu
