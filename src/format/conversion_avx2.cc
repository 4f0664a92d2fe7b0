// Compiled for AVX2 and F16C: nothing here may be an inline function shared with other files, or the linker could pick
// this copy of it for machines without these instructions.
#include <immintrin.h>

#include "format/conversion_kernels.h"

namespace temper::internal {
namespace {

inline __m256i Load8x16(const uint16_t* in) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}
inline void Store8x32(uint32_t* out, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), x);
}
// Past the caches: a line that is written whole need not be read first. REQUIRES: `out` aligned to 32 bytes.
inline void Stream8x32(uint32_t* out, __m256i x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(out), x);
}
inline bool AlignedTo32(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 32 == 0;
}
// From here on a result is taken for too large for its next reader to find it in a cache: half of what a core's
// second-level cache holds (1 MiB and more where it matters).
constexpr int64_t kStreamedBytes = 512 << 10;

// out[i] = widen(i) in vectors of eight, for the widening kernels.
template <class Widen>
inline void WidenVectors(uint32_t* out, int64_t n, Widen widen) {
  if (n * 4 >= kStreamedBytes && AlignedTo32(out)) {
    for (int64_t i = 0; i + kConversionVector <= n; i += kConversionVector) {
      Stream8x32(out + i, widen(i));
      Stream8x32(out + i + 8, widen(i + 8));
    }
    _mm_sfence();  // streamed lines are seen by other threads only in this order
    return;
  }
  for (int64_t i = 0; i + kConversionVector <= n; i += kConversionVector) {
    Store8x32(out + i, widen(i));
    Store8x32(out + i + 8, widen(i + 8));
  }
}

inline __m256i F16x8ToF32(const uint16_t* in) {
  return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
}

// f32 bits -> bf16 bits in the low half of each lane: nearest even, NaN quiet.
inline __m256i RoundToBF16(__m256i u) {
  const __m256i upper = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i magnitude = _mm256_and_si256(u, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

// Two vectors of eight bf16 in 32-bit lanes -> sixteen bf16 in order. packus works within 128-bit halves.
inline void StoreBF16x16(uint16_t* out, __m256i a, __m256i b) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), packed);
}

}  // namespace

void BF16ToF32Avx2(const uint16_t* in, uint32_t* out, int64_t n) {
  WidenVectors(out, n, [in](int64_t i) { return _mm256_slli_epi32(Load8x16(in + i), 16); });
}

void F32ToBF16Avx2(const uint32_t* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i + kConversionVector <= n; i += kConversionVector) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + 8));
    StoreBF16x16(out + i, RoundToBF16(a), RoundToBF16(b));
  }
}

void F16ToF32Avx2(const uint16_t* in, uint32_t* out, int64_t n) {
  WidenVectors(out, n, [in](int64_t i) { return F16x8ToF32(in + i); });
}

void F16ToBF16Avx2(const uint16_t* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i + kConversionVector <= n; i += kConversionVector) {
    StoreBF16x16(out + i, RoundToBF16(F16x8ToF32(in + i)), RoundToBF16(F16x8ToF32(in + i + 8)));
  }
}

}  // namespace temper::internal
