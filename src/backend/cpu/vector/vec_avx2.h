// Vectors of 8 f32 lanes on AVX2 and FMA; vec_avx512.h explains the names.
// Only for *_avx2.cc. Everything is in an anonymous namespace (isa.h says why).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tensor/dtype.h"

#define TEMPER_INLINE inline __attribute__((always_inline))
#define TEMPER_VEC static TEMPER_INLINE

namespace temper {
namespace {

using Floats = __m256;
using Doubles = __m256d;
using Ints = __m256i;
constexpr int64_t kLanes = 8;

struct Full {};
struct Part {
  __m256i mask;
  int n;
};
TEMPER_VEC Part First(int64_t n) {
  const int count = static_cast<int>(n);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), count};
}

TEMPER_VEC Floats Zero() {
  return _mm256_setzero_ps();
}
TEMPER_VEC Floats Set(float x) {
  return _mm256_set1_ps(x);
}

// Of pairs of lanes (a, b): (b, a), (a, a), (b, b); and (-1, 1).
TEMPER_VEC Floats SwapPairs(Floats x) {
  return _mm256_permute_ps(x, 0xB1);
}
TEMPER_VEC Floats FirstOfPairs(Floats x) {
  return _mm256_moveldup_ps(x);
}
TEMPER_VEC Floats SecondOfPairs(Floats x) {
  return _mm256_movehdup_ps(x);
}
TEMPER_VEC Floats AlternatingSigns() {
  return _mm256_blend_ps(Set(-1), Set(1), 0xAA);
}

// Of 2 kLanes numbers, in a and b, those of even places and those of odd ones; and back: the first and the last kLanes
// numbers of which e and o are these.
TEMPER_VEC Floats EvenPlaces(Floats a, Floats b) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xD8));
}
TEMPER_VEC Floats OddPlaces(Floats a, Floats b) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD)), 0xD8));
}
TEMPER_VEC Floats FirstInTurn(Floats e, Floats o) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(e, o), _mm256_unpackhi_ps(e, o), 0x20);
}
TEMPER_VEC Floats LastInTurn(Floats e, Floats o) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(e, o), _mm256_unpackhi_ps(e, o), 0x31);
}

TEMPER_VEC Floats Load(const float* p, Full) {
  return _mm256_loadu_ps(p);
}
TEMPER_VEC Floats Load(const float* p, Part part) {
  return _mm256_maskload_ps(p, part.mask);
}
TEMPER_VEC Floats FromUpperHalves(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
TEMPER_VEC Floats Load(const bf16* p, Full) {
  return FromUpperHalves(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TEMPER_VEC Floats Load(const bf16* p, Part part) {
  alignas(16) uint16_t bits[8] = {};
  for (int i = 0; i < part.n; ++i) bits[i] = p[i].bits;
  return FromUpperHalves(_mm_load_si128(reinterpret_cast<const __m128i*>(bits)));
}

TEMPER_VEC void Store(float* p, Floats x, Full) {
  _mm256_storeu_ps(p, x);
}
TEMPER_VEC void Store(float* p, Floats x, Part part) {
  _mm256_maskstore_ps(p, part.mask, x);
}
TEMPER_VEC __m128i RoundToUpperHalves(Floats x) {
  const Ints u = _mm256_castps_si256(x);
  const Ints odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const Ints rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const Ints quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const Ints nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const Ints halves = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  // packus works within 128-bit halves: bring the two results together.
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08));
}
TEMPER_VEC void Store(bf16* p, Floats x, Full) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), RoundToUpperHalves(x));
}
TEMPER_VEC void Store(bf16* p, Floats x, Part part) {
  alignas(16) uint16_t bits[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(bits), RoundToUpperHalves(x));
  for (int i = 0; i < part.n; ++i) p[i].bits = bits[i];
}

// Store for where the bits are prescribed; see vec_avx512.h.
template <class T, class Lanes>
TEMPER_VEC void StoreExact(T* p, Floats x, Lanes lanes) {
  Store(p, x, lanes);
}

TEMPER_VEC Floats Fma(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
TEMPER_VEC Floats Sqrt(Floats x) {
  return _mm256_sqrt_ps(x);
}
TEMPER_VEC Floats Abs(Floats x) {
  return _mm256_andnot_ps(Set(-0.0f), x);
}
TEMPER_VEC Floats AtLeast(float low, Floats x) {
  return _mm256_max_ps(Set(low), x);
}
TEMPER_VEC Floats AtMost(float high, Floats x) {
  return _mm256_min_ps(Set(high), x);
}
TEMPER_VEC Floats AtMostOne(Floats x) {
  return _mm256_min_ps(x, Set(1.0f));
}
TEMPER_VEC Floats WhereNegative(Floats x, Floats then, Floats otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(x, Zero(), _CMP_LT_OQ));
}
TEMPER_VEC Floats ZeroUnlessPositive(Floats x, Floats then) {
  return _mm256_and_ps(_mm256_cmp_ps(x, Zero(), _CMP_GT_OQ), then);
}
TEMPER_VEC Floats Keep(Floats x, Full) {
  return x;
}
TEMPER_VEC Floats Keep(Floats x, Part part) {
  return _mm256_and_ps(_mm256_castsi256_ps(part.mask), x);
}
TEMPER_VEC Floats RoundToInteger(Floats x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// In two factors 2^(n/2), each of which f32 can hold for |n| <= 252; only the last product rounds. 0 where n < -126.
TEMPER_VEC Floats TimesPowerOfTwo(Floats x, Floats n) {
  x = _mm256_and_ps(x, _mm256_cmp_ps(n, Set(-126.0f), _CMP_NLT_UQ));
  const Ints whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const Ints bias = _mm256_set1_epi32(127);
  const Ints first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const Ints second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return x * _mm256_castsi256_ps(first) * _mm256_castsi256_ps(second);
}

TEMPER_VEC float Sum(Floats x) {
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

TEMPER_VEC Floats Larger(Floats a, Floats b) {
  return a > b ? a : b;
}
TEMPER_VEC float LargestLane(Floats x) {
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

TEMPER_VEC Doubles ZeroDoubles() {
  return _mm256_setzero_pd();
}
TEMPER_VEC Doubles LowDoubles(Floats x) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
TEMPER_VEC Doubles HighDoubles(Floats x) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
TEMPER_VEC Doubles Fma(Doubles a, Doubles b, Doubles c) {
  return _mm256_fmadd_pd(a, b, c);
}
TEMPER_VEC double Sum(Doubles x) {
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

TEMPER_VEC Ints SetInt(uint32_t x) {
  return _mm256_set1_epi32(static_cast<int>(x));
}
TEMPER_VEC Ints AddInts(Ints a, Ints b) {
  return _mm256_add_epi32(a, b);
}
TEMPER_VEC Ints XorInts(Ints a, Ints b, Ints c) {
  return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
TEMPER_VEC Ints MultiplyWide(Ints a, Ints b, Ints* high) {
  const Ints even = _mm256_mul_epu32(a, b);
  const Ints odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
// Lane number r (0 to 3) of 128-bit half q holds 2r + q.
TEMPER_VEC Ints InterleavedLanes() {
  return _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
}
TEMPER_VEC void Interleave(Ints c[4]) {
  const Ints a = _mm256_unpacklo_epi32(c[0], c[1]), b = _mm256_unpacklo_epi32(c[2], c[3]);
  const Ints d = _mm256_unpackhi_epi32(c[0], c[1]), e = _mm256_unpackhi_epi32(c[2], c[3]);
  c[0] = _mm256_unpacklo_epi64(a, b);
  c[1] = _mm256_unpackhi_epi64(a, b);
  c[2] = _mm256_unpacklo_epi64(d, e);
  c[3] = _mm256_unpackhi_epi64(d, e);
}
TEMPER_VEC Floats UnitFloats(Ints draw) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(draw, 8)), Set(0x1.0p-24f));
}
TEMPER_VEC Floats KeepDrawn(Ints draw, uint32_t threshold, Floats x) {
  const Ints dropped = _mm256_cmpgt_epi32(SetInt(threshold), _mm256_srli_epi32(draw, 8));
  return _mm256_andnot_ps(_mm256_castsi256_ps(dropped), x);
}
TEMPER_VEC Floats RoundDrawn(Ints draw, Floats x) {
  const Ints bits = _mm256_castps_si256(x);
  const Ints sum = _mm256_add_epi32(bits, _mm256_srli_epi32(draw, 16));
  const Floats finite = _mm256_cmp_ps(Abs(x), Set(__builtin_inff()), _CMP_LT_OQ);
  const Floats cut = _mm256_castsi256_ps(_mm256_and_si256(sum, SetInt(0xFFFF0000)));
  return _mm256_blendv_ps(x, cut, finite);
}

}  // namespace
}  // namespace temper
