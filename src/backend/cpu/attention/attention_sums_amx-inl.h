// Products of attention's tiles on Intel's matrix units: the names of attention_sums-inl.h. Sums of 32 x 32 lie in tile
// registers 0 to 3, from ClearSums or a load until they are stored; registers 4 to 7 hold operands. Operands are rows
// of words, read where they lie, and panels: a step takes 32 k of both, so what goes beyond a depth is zero.
//
// What probabilities are multiplied by to make d_v and d_k has queries as its depth: as the second operand they lie in
// the pairs of rows that their panels are, as the first they would have to be transposed. So those sums are made
// transposed, E x keys, from panels of rows of E, and turned once at the end.
#pragma once

#include "backend/cpu/attention/attention_tile.h"
#include "backend/cpu/products/amx_registers-inl.h"
#include "backend/cpu/products/word_transpose-inl.h"

namespace temper {
namespace {

constexpr int kRows = 32;
constexpr int64_t kColumns = 32;
constexpr int64_t kDepthWords = 16;
constexpr int64_t kKeysAtOnce = 256;  // scores of 32 rows stay in the first-level cache

struct Sums {
  alignas(64) float settled[kRows][kColumns];
};

TEMPER_VEC void ClearSums(Sums&) {
  BeforeTileLoads();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
TEMPER_VEC void LoadSums(const float* from, int64_t stride, Sums&) {
  BeforeTileLoads();
  const int64_t bytes = stride * 4;
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + 16, bytes);
  _tile_loadd(2, from + kRegisterRows * stride, bytes);
  _tile_loadd(3, from + kRegisterRows * stride + 16, bytes);
}
TEMPER_VEC void LoadScaledSums(float* from, int64_t stride, const float* factors, Sums& sum) {
  for (int i = 0; i < kRows; ++i) {
    float* const row = from + i * stride;
    for (int64_t v = 0; v < kColumns; v += kLanes) Store(row + v, Load(row + v, Full{}) * Set(factors[i]), Full{});
  }
  LoadSums(from, stride, sum);
}
TEMPER_VEC void StoreSums(const Sums&, float* to, int64_t stride) {
  const int64_t bytes = stride * 4;
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + 16, bytes);
  _tile_stored(2, to + kRegisterRows * stride, bytes);
  _tile_stored(3, to + kRegisterRows * stride + 16, bytes);
}
TEMPER_VEC void SettleSums(Sums& sum) {
  StoreSums(sum, sum.settled[0], kColumns);
}
TEMPER_VEC Floats SumAt(const Sums& sum, int i, int v) {
  return Load(sum.settled[i] + v * kLanes, Full{});
}

// R registers of rows, `a_register` bytes apart, times two of columns, 64 bytes apart, added to R x 2 of sums.
template <int R>
TEMPER_VEC void AddStep(const char* a, int64_t a_register, int64_t a_stride, const int* b, int64_t b_stride) {
  _tile_loadd(4, a, a_stride);
  _tile_loadd(6, b, b_stride);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, b + 16, b_stride);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (R == 2) {
    _tile_loadd(5, a + a_register, a_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <class Math, int64_t kRowWords>
TEMPER_VEC void AddProduct(const int* rows, const int* panel, int64_t steps, Sums&) {
  constexpr int64_t kStride = kRowWords * 4;
  for (int64_t word = 0; word < steps; word += kDepthWords) {
    AddStep<2>(reinterpret_cast<const char*>(rows + word), kRegisterRows * kStride, kStride, panel + word * kColumns,
               kColumns * 4);
  }
}

// Adds to the columns of keys [key, key + kColumns) of sums [E, kAttentionBlock]. `row_panels` are panels of rows of E
// (gemm_tile_amx-inl.h), 32 each, the last one may have 16.
template <class Math>
TEMPER_VEC void AddToKeys(const int* panel, const char* row_panels, int64_t row_panel_bytes, int64_t first_step,
                          int64_t steps, int64_t key, int64_t E, float* sums) {
  const int* const b = panel + first_step * kAttentionBlock + key;
  for (int64_t e = 0; e < E; e += kRows) {
    const bool both = E - e > kRegisterRows;
    const int64_t step_bytes = both ? 2 * kRegisterBytes : kRegisterBytes;
    const char* a = row_panels + e / kRows * row_panel_bytes + first_step / kDepthWords * step_bytes;
    float* const to = sums + e * kAttentionBlock + key;
    constexpr int64_t kStride = kAttentionBlock * 4;
    BeforeTileLoads();
    _tile_loadd(0, to, kStride);
    _tile_loadd(1, to + 16, kStride);
    if (both) {
      _tile_loadd(2, to + kRegisterRows * kAttentionBlock, kStride);
      _tile_loadd(3, to + kRegisterRows * kAttentionBlock + 16, kStride);
      for (int64_t word = 0; word < steps; word += kDepthWords, a += step_bytes) {
        AddStep<2>(a, kRegisterBytes, kRowBytes, b + word * kAttentionBlock, kStride);
      }
      _tile_stored(2, to + kRegisterRows * kAttentionBlock, kStride);
      _tile_stored(3, to + kRegisterRows * kAttentionBlock + 16, kStride);
    } else {
      for (int64_t word = 0; word < steps; word += kDepthWords, a += step_bytes) {
        AddStep<1>(a, kRegisterBytes, kRowBytes, b + word * kAttentionBlock, kStride);
      }
    }
    _tile_stored(0, to, kStride);
    _tile_stored(1, to + 16, kStride);
  }
}

constexpr int64_t kTurningScratch = kAttentionBlock * kHeadPiece * 4;  // for each kHeadPiece of E

// From [E, kAttentionBlock] to rows of E, rounded up to kColumns.
void TurnKeys(float* sums, int64_t E, void* scratch) {
  float* const from = static_cast<float*>(scratch);
  __builtin_memcpy(from, sums, static_cast<size_t>(E * kAttentionBlock * 4));
  const int64_t padded_E = (E + kColumns - 1) / kColumns * kColumns;
  for (int64_t e = 0; e < E; e += 16) {
    for (int64_t key = 0; key < kAttentionBlock; key += 16) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + (e + i) * kAttentionBlock + key);
      Transpose16(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(sums + (key + i) * padded_E + e, r[i]);
    }
  }
}
constexpr auto kTurnKeys = TurnKeys;

}  // namespace
}  // namespace temper
