// Transposition of 16 x 16 words by AVX-512. For the files of that instruction set and of AMX alone (isa.h).
#pragma once

#include <immintrin.h>

namespace temper {
namespace {

// In: row i holds words i*16..i*16+15 of line i. Out: row w holds word w of lines 0..15.
inline void Transpose16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4g + c]: lane l of 128 bits holds word 4l + c of lines 4g..4g+3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i x = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), y = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i z = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD), w = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
    t[c] = _mm512_shuffle_i32x4(x, y, 0x88);       // word c
    t[8 + c] = _mm512_shuffle_i32x4(x, y, 0xDD);   // word 8 + c
    t[4 + c] = _mm512_shuffle_i32x4(z, w, 0x88);   // word 4 + c
    t[12 + c] = _mm512_shuffle_i32x4(z, w, 0xDD);  // word 12 + c
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace
}  // namespace temper
