// Bytes from one place on the device to another, and zeros, as kernels among kernels.
#pragma once

#include <cstdint>

#include "backend/gpu/launch.h"

namespace temper::gpu {

// `from` at any address, `to` aligned to 16.
struct CopyBytes {
  const unsigned char* from;
  unsigned char* to;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    Pack<unsigned char, kCount> pack;
    if (reinterpret_cast<uintptr_t>(from) % kCount == 0) {
      pack = *reinterpret_cast<const Pack<unsigned char, kCount>*>(from + i);
    } else {
      for (int k = 0; k < kCount; ++k) pack.x[k] = from[i + k];
    }
    *reinterpret_cast<Pack<unsigned char, kCount>*>(to + i) = pack;
  }
};

// Nothing if both are the same place. REQUIRES: otherwise they do not overlap.
inline Status Copy(const std::byte* from, std::byte* to, Bytes bytes, gpuStream_t stream) {
  if (from == to) return OkStatus();
  return Map<16>(bytes.v, CopyBytes{reinterpret_cast<const unsigned char*>(from), reinterpret_cast<unsigned char*>(to)},
                 stream);
}

struct ClearFloats {
  float* to;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    const float zero[kCount] = {};
    Store(to + i, zero);
  }
};
inline Status Clear(float* to, int64_t n, gpuStream_t stream) {
  return Map<4>(n, ClearFloats{to}, stream);
}

}  // namespace temper::gpu
