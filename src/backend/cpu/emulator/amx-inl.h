// The AMX instructions that products use, executed by AVX-512 as Intel's manual describes them (Software Developer's
// Manual, volume 2: LDTILECFG, TILELOADD, TDPBF16PS, ...), under the names of their intrinsics. Each thread has
// registers of its own. What would fault on a processor ends the test.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/emulator/emulated_amx.h"

namespace temper {
namespace {

struct EmulatedTiles : EmulatedRegisters {
  void Check(bool good) const {
    if (!good) __builtin_trap();
  }
  void LoadConfig(const void* memory) {
    const auto* bytes = static_cast<const unsigned char*>(memory);
    Check(bytes[0] == 1 && bytes[1] == 0);
    for (int i = 2; i < 64; ++i) Check((i >= 16 && i < 32) || (i >= 48 && i < 56) || bytes[i] == 0);
    for (int t = 0; t < 8; ++t) {
      row_bytes[t] = bytes[16 + 2 * t] | bytes[17 + 2 * t] << 8;
      rows[t] = bytes[48 + t];
      Check(row_bytes[t] <= 64 && rows[t] <= 16 && (row_bytes[t] == 0) == (rows[t] == 0));
    }
    if (!configured) __atomic_add_fetch(&threads_with_emulated_tiles, 1, __ATOMIC_RELAXED);
    configured = true;
    for (int t = 0; t < 8; ++t) Zero(t);
  }
  void Release() {
    if (configured) __atomic_sub_fetch(&threads_with_emulated_tiles, 1, __ATOMIC_RELAXED);
    configured = false;
  }
  void Zero(int t) {
    Check(configured);
    __builtin_memset(data[t], 0, sizeof(data[t]));
  }
  void Load(int t, const void* base, int64_t stride) {
    Check(configured && rows[t] > 0);
    Zero(t);
    for (int i = 0; i < rows[t]; ++i) {
      __builtin_memcpy(data[t][i], static_cast<const char*>(base) + i * stride, static_cast<size_t>(row_bytes[t]));
    }
  }
  void Store(int t, void* base, int64_t stride) const {
    Check(configured && rows[t] > 0);
    for (int i = 0; i < rows[t]; ++i) {
      __builtin_memcpy(static_cast<char*>(base) + i * stride, data[t][i], static_cast<size_t>(row_bytes[t]));
    }
  }
  // Denormals are zero, as operands and as results.
  static __m512 Flush(__m512 x) {
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
    const __mmask16 denormal = _mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0x80000000u)));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(_mm512_castps_si512(x), denormal, sign));
  }
  static __m512 Even(__m512i pairs) { return Flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))); }
  static __m512 Odd(__m512i pairs) {
    return Flush(_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)))));
  }
  // Sums the first elements of a row's pairs apart from the second ones, each product by an fma rounded to the nearest;
  // the two sums, added, are then added to the register's.
  void MultiplyPairs(int c, int a, int b) {
    Check(configured && rows[c] == rows[a] && row_bytes[c] == row_bytes[b] && row_bytes[a] == 4 * rows[b] && c != a &&
          c != b && a != b);
    for (int m = 0; m < rows[c]; ++m) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (int k = 0; k < rows[b]; ++k) {
        int pair;
        __builtin_memcpy(&pair, data[a][m] + 4 * k, 4);
        const __m512i of_a = _mm512_set1_epi32(pair), of_b = _mm512_load_si512(data[b][k]);
        even = Flush(_mm512_fmadd_ps(Even(of_a), Even(of_b), even));
        odd = Flush(_mm512_fmadd_ps(Odd(of_a), Odd(of_b), odd));
      }
      const __m512 sum = Flush(_mm512_add_ps(even, odd)), before = Flush(_mm512_load_ps(data[c][m]));
      _mm512_store_ps(data[c][m], Flush(_mm512_add_ps(before, sum)));
    }
  }
};

// Adds functions to the thread's registers, no data.
inline EmulatedTiles& TilesOfThread() {
  return static_cast<EmulatedTiles&>(emulated_registers);
}

}  // namespace
}  // namespace temper

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) TilesOfThread().LoadConfig(config)
#define _tile_release() TilesOfThread().Release()
#define _tile_zero(t) TilesOfThread().Zero(t)
#define _tile_loadd(t, base, stride) TilesOfThread().Load(t, base, stride)
#define _tile_stream_loadd(t, base, stride) TilesOfThread().Load(t, base, stride)
#define _tile_stored(t, base, stride) TilesOfThread().Store(t, base, stride)
#define _tile_dpbf16ps(c, a, b) TilesOfThread().MultiplyPairs(c, a, b)
