// Matrix units of AMD's wavefronts of 64 lanes, from CDNA2 on: products of 32 x 32 x 8 with bf16 operands and f32 sums
// (V_MFMA_F32_32X32X8_BF16_1K).
//
// Of lane l, with g = l / 32 (CDNA2's and CDNA3's instruction sets; as tests/conformance/matrix_layouts.py has it from
// Triton):
//   a [32, 8]    row l % 32, columns 4g .. 4g+3
//   b [8, 32]    rows 4g .. 4g+3 of column l % 32
//   d [32, 32]   d[i]: row 8 (i / 4) + 4g + i % 4, column l % 32
// Two bf16 share a word, the lower column (row, of b) in its lower half. Numbers below 2^-126 count as zeros on CDNA2.
#pragma once

#include <cstdint>

#include "backend/gpu/gpu_api.h"

#if TEMPER_MFMA
namespace temper::gpu {

// d += a b. The order of the terms is the hardware's, always the same.
__device__ __forceinline__ void Mfma32x32x8(const uint32_t (&a)[2], const uint32_t (&b)[2], float (&d)[16]);

#if defined(TEMPER_GPU_EMULATED)

// The terms in f32, one after the other.
void Mfma32x32x8(const uint32_t (&a)[2], const uint32_t (&b)[2], float (&d)[16]) {
  const simt::WarpWords* const words = simt::ExchangeWords({a[0], a[1], b[0], b[1]}, __LINE__);
  const auto half = [](uint32_t word, int i) { return ToFloat(bf16{static_cast<uint16_t>(word >> 16 * i)}); };
  const int lane = simt::Here().index % simt::WarpSize();
  for (int i = 0; i < 16; ++i) {
    const int row = i / 4 * 8 + lane / 32 * 4 + i % 4, column = lane % 32;
    for (int k = 0; k < 8; ++k) {
      const auto word = static_cast<size_t>(k % 4 / 2);
      d[i] += half(words[k / 4 * 32 + row][word], k % 2) * half(words[k / 4 * 32 + column][2 + word], k % 2);
    }
  }
}

#else

__device__ void Mfma32x32x8([[maybe_unused]] const uint32_t (&a)[2], [[maybe_unused]] const uint32_t (&b)[2],
                            [[maybe_unused]] float (&d)[16]) {
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
  using Halves = short __attribute__((ext_vector_type(4)));
  using Sums = float __attribute__((ext_vector_type(16)));
  Sums sums;
  TEMPER_UNROLL
  for (int i = 0; i < 16; ++i) sums[i] = d[i];
  sums = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), sums, 0,
                                                  0, 0);
  TEMPER_UNROLL
  for (int i = 0; i < 16; ++i) d[i] = sums[i];
#else
  __builtin_trap();  // no stream of such a GPU gets here: WithMatrixUnit
#endif
}

#endif

}  // namespace temper::gpu
#endif  // TEMPER_MFMA
