// Shared by the kernels of attention without matrix units: a block works on tiles of kTile rows (queries or keys) of
// one head, in f32 in shared memory. kLanes neighbouring threads share a row: each takes every kLanes-th column of a
// tile.
//
// These are the kernels for f32, wide heads and GPUs without matrix units. Work per tile pair is 4 kTile^2 E flops on 2
// kTile E elements, so memory does not bound them.
#pragma once

#include "backend/gpu/attention/attention_operands.h"

namespace temper::gpu {

// Wider heads would not fit four tiles into the 48 KiB of shared memory that every GPU has.
inline constexpr int64_t kMostHeadDim = 256;

template <int kTile, int kE>
struct TileShape {
  static constexpr int kRows = kTile, kWidth = kE;
  static constexpr int kLanes = kBlockThreads / kTile;
  static constexpr int kPairs = (kTile + kLanes - 1) / kLanes;  // of a score tile's row, per thread; some have none
  static constexpr int kColumns = kE / kLanes;                  // of an output's row, per thread
  static constexpr int kStride = kE + 1;                        // odd: lanes that read a column meet different banks
  static constexpr int kScoreStride = kTile + 1;
  static constexpr int kElements = kTile * kStride, kScores = kTile * kScoreStride;
};
using SmallHead = TileShape<32, 64>;
using LargeHead = TileShape<16, 128>;
using WideHead = TileShape<8, 256>;

// Rows [first, end) of a head of x_T(H*E), if they exist; zeros for the rest of the tile.
template <class S, class T>
__device__ void LoadTile(const T* x, int64_t first, int64_t end, int64_t heads, int64_t h, int64_t E,
                         Shared<float> tile) {
  for (int i = static_cast<int>(threadIdx.x); i < S::kRows * S::kWidth; i += kBlockThreads) {
    const int row = i / S::kWidth, e = i % S::kWidth;
    const bool there = first + row < end && e < E;
    tile[row * S::kStride + e] = there ? Get(x + ((first + row) * heads + h) * E + e) : 0.0f;
  }
}

template <class S>
__device__ float Dot(Shared<float> a, int a_row, Shared<float> b, int b_row, int64_t E) {
  float dot = 0;
  for (int e = 0; e < E; ++e) dot = Fma(a[a_row * S::kStride + e], b[b_row * S::kStride + e], dot);
  return dot;
}

// Over the kLanes threads of a row, in all of them.
template <class S, class Combine>
__device__ float ReduceRow(float x) {
  for (int mask = S::kLanes / 2; mask > 0; mask /= 2) x = Combine()(x, ShuffleXor(x, mask));
  return x;
}

// out[c] += sum over i of weight[row, i] * tile[i, column c of this lane].
template <class S>
__device__ void AddWeighted(Shared<float> weight, int row, int lane, Shared<float> tile, float (&out)[S::kColumns]) {
  for (int i = 0; i < S::kRows; ++i) {
    const float w = weight[row * S::kScoreStride + i];
    for (int c = 0; c < S::kColumns; ++c) out[c] = Fma(w, tile[i * S::kStride + lane + S::kLanes * c], out[c]);
  }
}

// Row t of a head of y_T(H*E): this lane's columns, times `factor`.
template <class S, class T>
__device__ void StoreRow(const float (&x)[S::kColumns], float factor, int64_t t, int64_t heads, int64_t h, int64_t E,
                         int lane, T* y) {
  for (int c = 0; c < S::kColumns; ++c) {
    const int e = lane + S::kLanes * c;
    if (e < E) Put(y + (t * heads + h) * E + e, x[c] * factor);
  }
}

// Calls f.template operator()<T, S>() for the elements and the head dim of q.
template <class F>
std::unique_ptr<Kernel> DispatchAttention(const TensorType& q, int64_t E, const F& f) {
  if (!IsCompute(q) || E > kMostHeadDim) return nullptr;
  return DispatchFloat(q.dtype, [&]<class T>() {
    if (E <= SmallHead::kWidth) return f.template operator()<T, SmallHead>();
    return E <= LargeHead::kWidth ? f.template operator()<T, LargeHead>() : f.template operator()<T, WideHead>();
  });
}

}  // namespace temper::gpu
