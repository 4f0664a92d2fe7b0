// Sums and maxima over the threads of a block. Their order depends only on the warp's size: the same bits, run after
// run, on one kind of GPU.
#pragma once

#include "backend/gpu/gpu_api.h"

namespace temper::gpu {

inline constexpr int kBlockThreads = 256;  // of all kernels that reduce: four warps of AMD's, eight of NVIDIA's
inline constexpr int kMostWarps = kBlockThreads / 32;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Over the lanes of a warp, in all of them. REQUIRES: all its lanes call it.
template <class Combine, class T>
__device__ T ReduceWarp(T x) {
  for (int mask = WarpSize() / 2; mask > 0; mask /= 2) x = Combine()(x, ShuffleXor(x, mask));
  return x;
}

// Over the kBlockThreads threads of a block, in all of them. `scratch`: kMostWarps elements of shared memory that
// nothing else uses between the barriers before and after. REQUIRES: all threads of the block call it.
template <class Combine, class T>
__device__ T ReduceBlock(T x, Shared<T> scratch) {
  x = ReduceWarp<Combine>(x);
  const int lane = static_cast<int>(threadIdx.x) % WarpSize(), warp = static_cast<int>(threadIdx.x) / WarpSize();
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = scratch[0];
  for (int w = 1; w < kBlockThreads / WarpSize(); ++w) x = Combine()(x, static_cast<T>(scratch[w]));
  __syncthreads();  // the next reduction writes what this one reads
  return x;
}

}  // namespace temper::gpu
