// What products in tiles of AVX-512 and of AMX share: how sums go to memory. For the files of those instruction sets
// alone (isa.h).
#pragma once

// GCC 12's headers make "undefined" vectors by initialising a variable with itself, and warn about it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "backend/cpu/formats/format_readers.h"
#include "backend/cpu/products/gemm_tile.h"
#include "backend/cpu/products/word_transpose-inl.h"

namespace temper {
namespace {

struct F32 {  // f32 panels
  static __m512 MultiplyAdd(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  // To bf16, nearest even, NaN kept quiet, without the bf16 instructions.
  static __m256i Narrow(__m512 x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(r);
  }
};
struct BF16Pairs {  // panels of bf16 pairs
  static __m512 MultiplyAdd(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static __m256i Narrow(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
};

// The first n of 16 lanes.
inline __mmask16 WordMask(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

inline __m512 Widen(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

inline __m512 Load(const void* p, int64_t i, DType dtype, __mmask16 mask) {
  if (dtype == DType::kF32) return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(p) + i);
  return Widen(_mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(p) + i));
}

// Sums of a row, V vectors of 16 columns, become what is written.
template <int V>
inline void Complete(__m512 (&x)[V], const __mmask16 (&mask)[V], int64_t row, int64_t column, const TileOutput& o) {
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const int64_t j = column + 16 * v;
    if (o.sum != nullptr) x[v] = _mm512_add_ps(x[v], _mm512_maskz_loadu_ps(mask[v], o.sum + row * o.sum_stride + j));
    x[v] = _mm512_mul_ps(x[v], _mm512_set1_ps(o.scale));
    if (o.bias != nullptr) x[v] = _mm512_add_ps(x[v], Load(o.bias, j, o.bias_dtype, mask[v]));
    if (o.acc != nullptr) x[v] = _mm512_add_ps(x[v], Load(o.acc, row * o.acc_stride + j, o.acc_dtype, mask[v]));
  }
}

template <class Math, int V>
inline void WriteRow(const __m512 (&sum)[V], const __mmask16 (&mask)[V], int64_t row, int64_t column,
                     const TileOutput& o) {
  __m512 all[V];
  for (int v = 0; v < V; ++v) all[v] = sum[v];
  Complete<V>(all, mask, row, column, o);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const int64_t j = column + 16 * v;
    const __m512 x = all[v];
    if (o.out_dtype == DType::kF32) {
      float* p = static_cast<float*>(o.out) + row * o.out_stride + j;
      if (mask[v] == 0xFFFF) {
        _mm512_storeu_ps(p, x);
      } else {
        _mm512_mask_storeu_ps(p, mask[v], x);
      }
    } else {
      uint16_t* p = static_cast<uint16_t*>(o.out) + row * o.out_stride + j;
      if (mask[v] == 0xFFFF) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Math::Narrow(x));
      } else {
        _mm256_mask_storeu_epi16(p, mask[v], Math::Narrow(x));
      }
    }
  }
}

}  // namespace
}  // namespace temper
