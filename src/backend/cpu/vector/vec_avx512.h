// Vectors of 16 f32 lanes on AVX-512 F/BW/VL/DQ, under the names that the kernel bodies (*-inl.h) are written in;
// vec_avx2.h gives the same names 8 lanes. Arithmetic operators are the compiler's own on vector types.
// Only for *_avx512.cc. Everything is in an anonymous namespace (isa.h says why).
#pragma once

// GCC 12's AVX-512 headers make "undefined" vectors by initialising a variable with itself, and warn about it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#include "tensor/dtype.h"

#define TEMPER_INLINE inline __attribute__((always_inline))
#define TEMPER_VEC static TEMPER_INLINE

namespace temper {
namespace {

using Floats = __m512;
using Doubles = __m512d;  // half as many lanes
using Ints = __m512i;     // u32 lanes
constexpr int64_t kLanes = 16;

// Which lanes an operation touches: all, or the first n.
struct Full {};
struct Part {
  __mmask16 mask;
};
TEMPER_VEC Part First(int64_t n) {
  return {static_cast<__mmask16>((1u << n) - 1)};
}  // REQUIRES: 0 <= n < kLanes

TEMPER_VEC Floats Zero() {
  return _mm512_setzero_ps();
}
TEMPER_VEC Floats Set(float x) {
  return _mm512_set1_ps(x);
}
// Of pairs of lanes (a, b): (b, a), (a, a), (b, b); and (-1, 1).
TEMPER_VEC Floats SwapPairs(Floats x) {
  return _mm512_permute_ps(x, 0xB1);
}
TEMPER_VEC Floats FirstOfPairs(Floats x) {
  return _mm512_moveldup_ps(x);
}
TEMPER_VEC Floats SecondOfPairs(Floats x) {
  return _mm512_movehdup_ps(x);
}
TEMPER_VEC Floats AlternatingSigns() {
  return _mm512_mask_blend_ps(0xAAAA, Set(-1), Set(1));
}

// Of 2 kLanes numbers, in a and b, those of even places and those of odd ones; and back: the first and the last kLanes
// numbers of which e and o are these.
TEMPER_VEC __m512i EveryOther(int first) {
  return _mm512_add_epi32(_mm512_set1_epi32(first),
                          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
}
TEMPER_VEC __m512i InTurn(int first) {
  return _mm512_add_epi32(_mm512_set1_epi32(first),
                          _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
}
TEMPER_VEC Floats EvenPlaces(Floats a, Floats b) {
  return _mm512_permutex2var_ps(a, EveryOther(0), b);
}
TEMPER_VEC Floats OddPlaces(Floats a, Floats b) {
  return _mm512_permutex2var_ps(a, EveryOther(1), b);
}
TEMPER_VEC Floats FirstInTurn(Floats e, Floats o) {
  return _mm512_permutex2var_ps(e, InTurn(0), o);
}
TEMPER_VEC Floats LastInTurn(Floats e, Floats o) {
  return _mm512_permutex2var_ps(e, InTurn(8), o);
}

// Lanes not loaded are zero.
TEMPER_VEC Floats Load(const float* p, Full) {
  return _mm512_loadu_ps(p);
}
TEMPER_VEC Floats Load(const float* p, Part part) {
  return _mm512_maskz_loadu_ps(part.mask, p);
}
TEMPER_VEC Floats FromUpperHalves(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
TEMPER_VEC Floats Load(const bf16* p, Full) {
  return FromUpperHalves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TEMPER_VEC Floats Load(const bf16* p, Part part) {
  return FromUpperHalves(_mm256_maskz_loadu_epi16(part.mask, p));
}

TEMPER_VEC void Store(float* p, Floats x, Full) {
  _mm512_storeu_ps(p, x);
}
TEMPER_VEC void Store(float* p, Floats x, Part part) {
  _mm512_mask_storeu_ps(p, part.mask, x);
}
// As ToBF16 of tensor/dtype.h.
TEMPER_VEC __m256i RoundToUpperHalves(Floats x) {
  const Ints u = _mm512_castps_si512(x);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const Ints rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const Ints quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
// vcvtneps2bf16 is one operation for nine, which halves the time of the cheaper bf16 loops; it rounds alike, but makes
// results below 2^-126 zero.
TEMPER_VEC __m256i ToUpperHalves(Floats x) {
#ifdef TEMPER_HARDWARE_BF16
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  return RoundToUpperHalves(x);
#endif
}
TEMPER_VEC void Store(bf16* p, Floats x, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToUpperHalves(x));
}
TEMPER_VEC void Store(bf16* p, Floats x, Part part) {
  _mm256_mask_storeu_epi16(p, part.mask, ToUpperHalves(x));
}
// Store for where the bits are prescribed: subnormal numbers too.
TEMPER_VEC void StoreExact(bf16* p, Floats x, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundToUpperHalves(x));
}
TEMPER_VEC void StoreExact(bf16* p, Floats x, Part part) {
  _mm256_mask_storeu_epi16(p, part.mask, RoundToUpperHalves(x));
}
template <class Lanes>
TEMPER_VEC void StoreExact(float* p, Floats x, Lanes lanes) {
  Store(p, x, lanes);
}

TEMPER_VEC Floats Fma(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
TEMPER_VEC Floats Sqrt(Floats x) {
  return _mm512_sqrt_ps(x);
}
TEMPER_VEC Floats Abs(Floats x) {
  return _mm512_abs_ps(x);
}
// Where x is NaN, so is the result.
TEMPER_VEC Floats AtLeast(float low, Floats x) {
  return _mm512_max_ps(Set(low), x);
}
TEMPER_VEC Floats AtMost(float high, Floats x) {
  return _mm512_min_ps(Set(high), x);
}
// 1 where x is NaN.
TEMPER_VEC Floats AtMostOne(Floats x) {
  return _mm512_min_ps(x, Set(1.0f));
}
TEMPER_VEC Floats WhereNegative(Floats x, Floats then, Floats otherwise) {
  return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(x, Zero(), _CMP_LT_OQ), then);
}
TEMPER_VEC Floats ZeroUnlessPositive(Floats x, Floats then) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, Zero(), _CMP_GT_OQ), then);
}
TEMPER_VEC Floats Keep(Floats x, Full) {
  return x;
}
TEMPER_VEC Floats Keep(Floats x, Part part) {
  return _mm512_maskz_mov_ps(part.mask, x);
}  // zero in the other lanes
TEMPER_VEC Floats RoundToInteger(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x * 2^n for integers n, with a correct overflow; 0 where n < -126, where the result would be denormal: computing one
// takes a processor some 150 cycles. NaN stays NaN.
TEMPER_VEC Floats TimesPowerOfTwo(Floats x, Floats n) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, Set(-126.0f), _CMP_NLT_UQ), x, n);
}

// Sum of the lanes: a fixed tree.
TEMPER_VEC float Sum(Floats x) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

// The larger of each pair of lanes, and of all lanes; NaN in b stays.
TEMPER_VEC Floats Larger(Floats a, Floats b) {
  return a > b ? a : b;
}
TEMPER_VEC float LargestLane(Floats x) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

TEMPER_VEC Doubles ZeroDoubles() {
  return _mm512_setzero_pd();
}
TEMPER_VEC Doubles LowDoubles(Floats x) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
TEMPER_VEC Doubles HighDoubles(Floats x) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
TEMPER_VEC Doubles Fma(Doubles a, Doubles b, Doubles c) {
  return _mm512_fmadd_pd(a, b, c);
}
TEMPER_VEC double Sum(Doubles x) {
  const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

TEMPER_VEC Ints SetInt(uint32_t x) {
  return _mm512_set1_epi32(static_cast<int>(x));
}
TEMPER_VEC Ints AddInts(Ints a, Ints b) {
  return _mm512_add_epi32(a, b);
}
TEMPER_VEC Ints XorInts(Ints a, Ints b, Ints c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
// The 64-bit products of each lane with the number that all lanes of b hold, as lower and upper halves. vpmuludq takes
// the even lanes; the shuffles put one product's halves between the other's.
TEMPER_VEC Ints MultiplyWide(Ints a, Ints b, Ints* high) {
  const Ints even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
  return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}
// Lane number r (0 to 3) of 128-bit quarter q holds 4r + q: see Interleave.
TEMPER_VEC Ints InterleavedLanes() {
  return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}
// With lane (q, r) of c[j] being word j of item 4r + q, makes the words of items 0, 1, 2, ... consecutive in c[0..3].
TEMPER_VEC void Interleave(Ints c[4]) {
  const Ints a = _mm512_unpacklo_epi32(c[0], c[1]), b = _mm512_unpacklo_epi32(c[2], c[3]);
  const Ints d = _mm512_unpackhi_epi32(c[0], c[1]), e = _mm512_unpackhi_epi32(c[2], c[3]);
  c[0] = _mm512_unpacklo_epi64(a, b);
  c[1] = _mm512_unpackhi_epi64(a, b);
  c[2] = _mm512_unpacklo_epi64(d, e);
  c[3] = _mm512_unpackhi_epi64(d, e);
}
// Uniform in [0, 1), as UnitFloat of base/philox.h.
TEMPER_VEC Floats UnitFloats(Ints draw) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(draw, 8)), Set(0x1.0p-24f));
}
// x where the upper 24 bits of the draw are at least `threshold`, else 0.
TEMPER_VEC Floats KeepDrawn(Ints draw, uint32_t threshold, Floats x) {
  return _mm512_maskz_mov_ps(_mm512_cmpge_epi32_mask(_mm512_srli_epi32(draw, 8), SetInt(threshold)), x);
}
// x with the upper 16 bits of the draw added to the 16 bits that bf16 lacks, which are then cut off.
TEMPER_VEC Floats RoundDrawn(Ints draw, Floats x) {
  const Ints bits = _mm512_castps_si512(x);
  const Ints sum = _mm512_add_epi32(bits, _mm512_srli_epi32(draw, 16));
  const __mmask16 finite = _mm512_cmp_ps_mask(Abs(x), Set(__builtin_inff()), _CMP_LT_OQ);
  const Ints cut = _mm512_and_si512(sum, SetInt(0xFFFF0000));
  return _mm512_mask_mov_ps(x, finite, _mm512_castsi512_ps(cut));
}

}  // namespace
}  // namespace temper
