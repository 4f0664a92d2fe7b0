// Words of bf16 pairs in shared memory, several in one instruction.
#pragma once

#include <cstdint>

#include "backend/gpu/element.h"

namespace temper::gpu {

// 2 kWords elements of a tile. REQUIRES: `at` is a multiple of that, kWords is 1, 2 or 4.
template <int kWords>
__device__ __forceinline__ void ReadWords(Shared<uint16_t> tile, int at, uint32_t (&x)[kWords]) {
#if defined(TEMPER_GPU_EMULATED)
  if (at % (2 * kWords) != 0) simt::Fail("a read that is not aligned");
  for (int i = 0; i < kWords; ++i) x[i] = uint32_t{tile[at + 2 * i]} | uint32_t{tile[at + 2 * i + 1]} << 16;
#else
  const auto pack = *reinterpret_cast<const Pack<uint32_t, kWords>*>(tile + at);
  TEMPER_UNROLL
  for (int i = 0; i < kWords; ++i) x[i] = pack.x[i];
#endif
}
template <int kWords>
__device__ __forceinline__ void WriteWords(Shared<uint16_t> tile, int at, const uint32_t (&x)[kWords]) {
#if defined(TEMPER_GPU_EMULATED)
  if (at % (2 * kWords) != 0) simt::Fail("a write that is not aligned");
  for (int i = 0; i < 2 * kWords; ++i) tile[at + i] = static_cast<uint16_t>(x[i / 2] >> i % 2 * 16);
#else
  Pack<uint32_t, kWords> pack;
  TEMPER_UNROLL
  for (int i = 0; i < kWords; ++i) pack.x[i] = x[i];
  *reinterpret_cast<Pack<uint32_t, kWords>*>(tile + at) = pack;
#endif
}

}  // namespace temper::gpu
