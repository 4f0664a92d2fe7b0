// Matrix units of AMD's wavefronts of 64 lanes, from CDNA2 on: products of 32 x 32 x 8 with bf16 operands and f32 sums
// (V_MFMA_F32_32X32X8_BF16_1K), and what of shared memory (LDS) is read and written in one instruction.
//
// Of lane l, with g = l / 32 (CDNA2's and CDNA3's instruction sets; tests/conformance/mfma_layout.py asks Triton):
//   a [32, 8]    row l % 32, columns 4g .. 4g+3
//   b [8, 32]    rows 4g .. 4g+3 of column l % 32
//   d [32, 32]   d[i]: row 8 (i / 4) + 4g + i % 4, column l % 32
// Two bf16 share a word, the lower column (row, of b) in its lower half. Numbers below 2^-126 count as zeros on CDNA2.
#pragma once

#include <cstdint>

#include "backend/gpu/element.h"

#if TEMPER_MFMA
namespace temper::gpu {

// d += a b. The order of the terms is the hardware's, always the same.
__device__ __forceinline__ void Mfma32x32x8(const uint32_t (&a)[2], const uint32_t (&b)[2], float (&d)[16]);

// 2 kWords elements of a tile. REQUIRES: `at` is a multiple of that, kWords is 1, 2 or 4.
template <int kWords>
__device__ __forceinline__ void ReadWords(Shared<uint16_t> tile, int at, uint32_t (&x)[kWords]);
__device__ __forceinline__ void WriteWords(Shared<uint16_t> tile, int at, const uint32_t (&x)[4]);

// The lower, the upper halves of two words.
__device__ __forceinline__ uint32_t LowerHalves(uint32_t low, uint32_t high);
__device__ __forceinline__ uint32_t UpperHalves(uint32_t low, uint32_t high);

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

template <int kWords>
void ReadWords(Shared<uint16_t> tile, int at, uint32_t (&x)[kWords]) {
  if (at % (2 * kWords) != 0) simt::Fail("a read that is not aligned");
  for (int i = 0; i < kWords; ++i) {
    x[i] = uint32_t{tile[at + 2 * i]} | uint32_t{tile[at + 2 * i + 1]} << 16;
  }
}
void WriteWords(Shared<uint16_t> tile, int at, const uint32_t (&x)[4]) {
  if (at % 8 != 0) simt::Fail("a write that is not aligned");
  for (int i = 0; i < 8; ++i) tile[at + i] = static_cast<uint16_t>(x[i / 2] >> i % 2 * 16);
}

uint32_t LowerHalves(uint32_t low, uint32_t high) {
  return (low & 0xFFFF) | high << 16;
}
uint32_t UpperHalves(uint32_t low, uint32_t high) {
  return low >> 16 | (high & 0xFFFF0000);
}

#else

__device__ void Mfma32x32x8(const uint32_t (&a)[2], const uint32_t (&b)[2], float (&d)[16]) {
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

template <int kWords>
__device__ void ReadWords(Shared<uint16_t> tile, int at, uint32_t (&x)[kWords]) {
  const auto pack = *reinterpret_cast<const Pack<uint32_t, kWords>*>(tile + at);
  TEMPER_UNROLL
  for (int i = 0; i < kWords; ++i) x[i] = pack.x[i];
}
__device__ void WriteWords(Shared<uint16_t> tile, int at, const uint32_t (&x)[4]) {
  *reinterpret_cast<Pack<uint32_t, 4>*>(tile + at) = {{x[0], x[1], x[2], x[3]}};
}

__device__ uint32_t LowerHalves(uint32_t low, uint32_t high) {
  return __builtin_amdgcn_perm(high, low, 0x05040100);
}
__device__ uint32_t UpperHalves(uint32_t low, uint32_t high) {
  return __builtin_amdgcn_perm(high, low, 0x07060302);
}

#endif

}  // namespace temper::gpu
#endif  // TEMPER_MFMA
