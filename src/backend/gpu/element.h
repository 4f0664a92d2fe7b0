// Elements in a kernel: f32 or bf16 in memory, f32 in registers, kCount neighbours at a time. Memory-bound kernels move
// 16 bytes per thread and instruction (kPack<T>), which a GPU's copy rate requires.
#pragma once

#include <type_traits>

#include "backend/gpu/gpu_api.h"
#include "tensor/dtype.h"

namespace temper::gpu {

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// For reading and writing where elements of other types lie.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) [[gnu::may_alias]] Pack {
  T x[kCount];
};

// REQUIRES of both: `p` is aligned to kCount elements; kCount is a power of two. An instruction per 16 bytes.
template <int kCount, class T>
__device__ __forceinline__ void Load(const T* p, float (&x)[kCount]) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(p);
  for (int i = 0; i < kCount; ++i) x[i] = ToFloat(pack.x[i]);
}
template <int kCount, class T>
__device__ __forceinline__ void Store(T* p, const float (&x)[kCount]) {
  if constexpr (std::is_same_v<T, bf16> && kCount % 2 == 0) {
    Pack<uint32_t, kCount / 2> pack;
    for (int i = 0; i < kCount; i += 2) pack.x[i / 2] = PackBf16(x[i], x[i + 1]);
    *reinterpret_cast<Pack<uint32_t, kCount / 2>*>(p) = pack;
  } else {
    Pack<T, kCount> pack;
    for (int i = 0; i < kCount; ++i) pack.x[i] = FromFloat<T>(x[i]);
    *reinterpret_cast<Pack<T, kCount>*>(p) = pack;
  }
}
template <class T>
__device__ __forceinline__ float Get(const T* p) {
  return ToFloat(*p);
}
template <class T>
__device__ __forceinline__ void Put(T* p, float x) {
  *p = FromFloat<T>(x);
}

}  // namespace temper::gpu
