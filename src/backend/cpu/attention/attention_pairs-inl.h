// Attention's arithmetic in bf16 on AVX-512 (attention_tile-inl.h): panels and probabilities in pairs, f32 sums.
#pragma once

#include "backend/cpu/attention/attention_tile-inl.h"

namespace temper {
namespace {

struct PairMath {
  using Element = bf16;
  using Words = __m512i;
  using PanelWord = int;
  static constexpr int64_t kStep = 2;
  static constexpr float kExponentFactor = kLog2E;

  static TEMPER_INLINE Words LoadWords(const int* p) { return _mm512_loadu_si512(p); }
  static TEMPER_INLINE Words Broadcast(const int* p) { return _mm512_set1_epi32(*p); }
  static TEMPER_INLINE Floats MultiplyAdd(Floats sum, Words a, Words b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static TEMPER_INLINE Floats Exponential(Floats x) { return RoughExp2(x); }
  static TEMPER_INLINE void CopyRow(const bf16* from, int64_t E, int* to) {
    for (int64_t e = 0; e < E; e += kLanes) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + e / 2),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + e)));
    }
  }
  static TEMPER_INLINE void StoreRow(int* row, int64_t column, Floats x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(row + column / 2), (__m256i)_mm512_cvtneps_pbh(x));
  }
  static TEMPER_INLINE void StorePanel(int* panel, int64_t row, int64_t column, Floats even, Floats odd) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                           23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_store_si512(panel + row / 2 * kAttentionBlock + column,
                       _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
  }
};

}  // namespace
}  // namespace temper
