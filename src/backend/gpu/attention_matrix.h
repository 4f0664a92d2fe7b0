// What the kernels of attention on matrix units share: bf16, heads of up to 128 elements. A block has four warps, each
// with 16 rows (queries or keys) of one head in registers; tiles of 64 rows of what they meet lie in shared memory,
// bf16 as they came. Scores and sums are f32; p and d_s are rounded to bf16 before their products, as on the CPU.
//
// Per 16 x 16 of a tile that is read from shared memory a warp does 2 x 4096 flops: 2048 flops per cycle and
// multiprocessor at 128 bytes per cycle, which is less than Hopper's matrix units do, and more than half of Ampere's.
#pragma once

#include "backend/gpu/attention_tile.h"
#include "backend/gpu/matrix_unit.h"

namespace temper::gpu {

// Made where matrix units can do it; nullptr elsewhere. `fault`: as in attention.cu; taken by what is made.
std::unique_ptr<Kernel> MakeMatrixAttention(const Heads& heads, const Context& context, Faults::Word* fault);
std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads& heads, const Context& context);

#if TEMPER_MATRIX_UNITS

inline constexpr int kMatrixThreads = 128;
inline constexpr int kTileRows = 64;
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

template <int kWidth>
struct MatrixTile {
  static constexpr int kE = kWidth;            // elements of a head, zeros beyond those it has
  static constexpr int kSteps = kE / 16;       // of a product's terms
  static constexpr int kColumnTiles = kE / 8;  // of an output
  static constexpr int kStride = kE + 8;       // 16 bytes more: the rows of a matrix lie in different banks
  static constexpr int kElements = kTileRows * kStride;
  static constexpr int kChunks = kE / 8;  // of 16 bytes, of a row
};

// The products of 16 bytes that CopyBeside moves need heads of whole ones.
inline bool FitsMatrixTiles(const Heads& heads) {
  return heads.E <= 128 && heads.E % 8 == 0;
}

// Starts to copy rows [first, first + kTileRows) of head h of x_T(H*E), zeros from `end` on.
template <class M>
__device__ __forceinline__ void CopyTile(const bf16* x, int64_t first, int64_t end, int64_t heads, int64_t h, int64_t E,
                                         Shared<Bf16Bits> tile) {
  TEMPER_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * M::kChunks; i += kMatrixThreads) {
    const int row = i / M::kChunks, e = i % M::kChunks * 8;
    const bool there = first + row < end && e < E;
    CopyBeside(there ? x + ((first + row) * heads + h) * E + e : x, there, tile, row * M::kStride + e);
  }
}

// Rows `row` and `row` + 8 of head h of x_T(H*E) as operands A, this lane's words of each step; zeros where not there.
template <class M>
__device__ __forceinline__ void LoadRows(const bf16* x, int64_t row, int64_t end, int64_t heads, int64_t h, int64_t E,
                                         int lane, FragmentA (&rows)[M::kSteps]) {
  TEMPER_UNROLL
  for (int step = 0; step < M::kSteps; ++step) {
    TEMPER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + i % 2 * 8, e = step * 16 + i / 2 * 8 + lane % 4 * 2;
      rows[step].x[i] =
          r < end && e < E ? *reinterpret_cast<const uint32_t*>(x + (r * heads + h) * E + e) : uint32_t{0};
    }
  }
}

// c[2] += rows times the 16 rows of the tile from `from` on, transposed: 16 x 16 scores.
template <class M>
__device__ __forceinline__ void AddScores(const FragmentA (&rows)[M::kSteps], Shared<Bf16Bits> tile, int from, int lane,
                                          FragmentC* c) {
  const int at = (from + lane / 16 * 8 + lane % 8) * M::kStride + lane / 8 % 2 * 8;
  TEMPER_UNROLL
  for (int step = 0; step < M::kSteps; ++step) {
    uint32_t b[4];
    LoadMatrices<false>(tile, at + step * 16, b);
    MultiplyAdd(rows[step], {{b[0], b[1]}}, c[0]);
    MultiplyAdd(rows[step], {{b[2], b[3]}}, c[1]);
  }
}

// out += weights (16 x 16) times the 16 rows of the tile from `from` on.
template <class M>
__device__ __forceinline__ void AddProduct(const FragmentA& weights, Shared<Bf16Bits> tile, int from, int lane,
                                           FragmentC (&out)[M::kColumnTiles]) {
  const int at = (from + lane / 8 % 2 * 8 + lane % 8) * M::kStride + lane / 16 * 8;
  TEMPER_UNROLL
  for (int column = 0; column < M::kColumnTiles; column += 2) {
    uint32_t b[4];
    LoadMatrices<true>(tile, at + column * 8, b);
    MultiplyAdd(weights, {{b[0], b[1]}}, out[column]);
    MultiplyAdd(weights, {{b[2], b[3]}}, out[column + 1]);
  }
}

// 16 x 16 sums as an operand A.
__device__ __forceinline__ FragmentA AsOperand(const FragmentC* c) {
  return {{PackBf16(c[0].x[0], c[0].x[1]), PackBf16(c[0].x[2], c[0].x[3]), PackBf16(c[1].x[0], c[1].x[1]),
           PackBf16(c[1].x[2], c[1].x[3])}};
}

// Row `row` (kHalf 0) or `row` + 8 (1) of head h of y_T(H*E): this lane's elements, times `factor`.
template <class M, int kHalf>
__device__ __forceinline__ void StoreHalf(const FragmentC (&x)[M::kColumnTiles], float factor, int64_t row,
                                          int64_t heads, int64_t h, int64_t E, int lane, bf16* y) {
  TEMPER_UNROLL
  for (int column = 0; column < M::kColumnTiles; ++column) {
    const int64_t e = column * 8 + lane % 4 * 2;
    if (e >= E) continue;
    *reinterpret_cast<uint32_t*>(y + ((row + kHalf * 8) * heads + h) * E + e) =
        PackBf16(x[column].x[kHalf * 2] * factor, x[column].x[kHalf * 2 + 1] * factor);
  }
}

// Over the four lanes that share a row.
template <class Combine>
__device__ __forceinline__ float ReduceQuad(float x) {
  x = Combine()(x, ShuffleXor(x, 1));
  return Combine()(x, ShuffleXor(x, 2));
}

#endif

}  // namespace temper::gpu
