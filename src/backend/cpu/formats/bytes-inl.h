// What readers share: elements of a byte as lanes, and elements of half a byte looked up among 16 numbers.
#pragma once

#include "tensor/format_run.h"

namespace temper {
namespace {

// Calls body(i, lanes) for kLanes elements at a time, and for the rest.
template <class Body>
TEMPER_VEC void ForLanes(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full());
  if (i < n) body(i, First(n - i));
}

#ifdef __AVX512F__

TEMPER_VEC __m128i LoadBytes(const std::byte* p, Full) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
TEMPER_VEC __m128i LoadBytes(const std::byte* p, Part part) {
  return _mm_maskz_loadu_epi8(part.mask, p);
}
TEMPER_VEC Floats FloatsOfSigned(__m128i bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// The words of so many bytes as f16, in f32.
using Halves = __m256i;
TEMPER_VEC Halves WordsOf(__m128i bytes) {
  return _mm256_cvtepu8_epi16(bytes);
}
TEMPER_VEC Floats FloatsOfHalves(Halves halves) {
  return _mm512_cvtph_ps(halves);
}

using Numbers16 = __m256i;  // 16 of bf16
TEMPER_VEC Numbers16 RoundedTimes(const float* numbers, float scale) {
  return RoundToUpperHalves(Load(numbers, Full()) * Set(scale));
}
TEMPER_VEC Numbers16 LoadNumbers(const bf16* numbers) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers));
}

// Looks up n elements, two a byte. kUpperFirst: the first of two is the upper half.
template <bool kUpperFirst>
TEMPER_VEC void LookUpPairs(const std::byte* all, Numbers16 numbers, int64_t n, uint16_t* out) {
  const __m512i twice = _mm512_broadcast_i64x4(numbers);  // a look-up takes 5 bits, of which the uppermost is not ours
  for (int64_t i = 0; i < n; i += 32) {
    const int64_t left = n - i, bytes = (left + 1) / 2;
    const __mmask16 bytes_left = bytes >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << bytes) - 1);
    const __m512i pairs = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(bytes_left, all + i / 2));
    const __m512i words = kUpperFirst ? _mm512_or_si512(_mm512_srli_epi32(pairs, 4), _mm512_slli_epi32(pairs, 16))
                                      : _mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 12));
    const __mmask32 mask = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
    _mm512_mask_storeu_epi16(out + i, mask, _mm512_permutexvar_epi16(words, twice));
  }
}

#else

TEMPER_VEC __m128i LoadBytes(const std::byte* p, Full) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
TEMPER_VEC __m128i LoadBytes(const std::byte* p, Part part) {
  alignas(8) std::byte rest[kLanes] = {};
  for (int i = 0; i < part.n; ++i) rest[i] = p[i];
  return LoadBytes(rest, Full());
}
TEMPER_VEC Floats FloatsOfSigned(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
using Halves = __m128i;
TEMPER_VEC Halves WordsOf(__m128i bytes) {
  return _mm_cvtepu8_epi16(bytes);
}
TEMPER_VEC Floats FloatsOfHalves(Halves halves) {
  return _mm256_cvtph_ps(halves);
}

struct Numbers16 {
  __m128i first, second;
};
TEMPER_VEC Numbers16 RoundedTimes(const float* numbers, float scale) {
  const auto eight = [scale](const float* at) { return RoundToUpperHalves(Load(at, Full()) * Set(scale)); };
  return {eight(numbers), eight(numbers + kLanes)};
}
TEMPER_VEC Numbers16 LoadNumbers(const bf16* numbers) {
  const auto eight = [](const bf16* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  return {eight(numbers), eight(numbers + kLanes)};
}

// Among the lower and the upper bytes of the numbers.
template <bool kUpperFirst>
TEMPER_VEC void LookUpPairs(const std::byte* all, Numbers16 numbers, int64_t n, uint16_t* out) {
  constexpr int64_t kAtOnce = 32;
  const __m128i byte = _mm_set1_epi16(0xFF), half = _mm_set1_epi8(0x0F);
  const __m128i lower = _mm_packus_epi16(_mm_and_si128(numbers.first, byte), _mm_and_si128(numbers.second, byte));
  const __m128i upper = _mm_packus_epi16(_mm_srli_epi16(numbers.first, 8), _mm_srli_epi16(numbers.second, 8));
  const auto read = [&](const std::byte* from, uint16_t* to) {
    const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i above = _mm_and_si128(_mm_srli_epi16(pairs, 4), half), below = _mm_and_si128(pairs, half);
    const __m128i even = kUpperFirst ? above : below, odd = kUpperFirst ? below : above;
    __m128i* const o = reinterpret_cast<__m128i*>(to);
    const auto look_up = [&](__m128i index, __m128i* at) {
      const __m128i l = _mm_shuffle_epi8(lower, index), u = _mm_shuffle_epi8(upper, index);
      _mm_storeu_si128(at, _mm_unpacklo_epi8(l, u));
      _mm_storeu_si128(at + 1, _mm_unpackhi_epi8(l, u));
    };
    look_up(_mm_unpacklo_epi8(even, odd), o);
    look_up(_mm_unpackhi_epi8(even, odd), o + 2);
  };
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) read(all + i / 2, out + i);
  if (i == n) return;
  std::byte rest[kAtOnce / 2] = {};
  uint16_t numbers_of_rest[kAtOnce];
  for (int64_t r = i; r < n; r += 2) rest[(r - i) / 2] = all[r / 2];
  read(rest, numbers_of_rest);
  for (int64_t r = i; r < n; ++r) out[r] = numbers_of_rest[r - i];
}

#endif

}  // namespace
}  // namespace temper
