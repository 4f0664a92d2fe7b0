// Products of attention's tiles whose sums lie in vector registers. Included by attention_tile_*.cc after vec_*.h and,
// in the same anonymous namespace,
//   constexpr int kRows   rows of a tile, even: kRows x 2 vectors of sums fill the registers
// attention_sums_amx-inl.h has the same names for matrix units.
#pragma once

#include "backend/cpu/attention/attention_tile.h"

namespace temper {
namespace {

constexpr int64_t kColumns = 2 * kLanes;  // of a tile: nr of gemm_tile.h
constexpr int64_t kDepthWords = 1;        // words of a row that a step of a product takes
constexpr int64_t kKeysAtOnce = 512;      // that a tile of the forward pass takes between rescalings of its sums
constexpr int64_t kTurningScratch = 0;    // bytes of kTurnKeys
constexpr auto kTurnKeys = nullptr;       // AttentionKernels::turn_keys

using Sums = Floats[kRows][2];

TEMPER_VEC void ClearSums(Sums& sum) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = Zero();
}
TEMPER_VEC void LoadSums(const float* from, int64_t stride, Sums& sum) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = Load(from + i * stride, Full{});
    sum[i][1] = Load(from + i * stride + kLanes, Full{});
  }
}
// Rows times factors[row].
TEMPER_VEC void LoadScaledSums(float* from, int64_t stride, const float* factors, Sums& sum) {
  LoadSums(from, stride, sum);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] *= Set(factors[i]);
    sum[i][1] *= Set(factors[i]);
  }
}
TEMPER_VEC void StoreSums(const Sums& sum, float* to, int64_t stride) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    Store(to + i * stride, sum[i][0], Full{});
    Store(to + i * stride + kLanes, sum[i][1], Full{});
  }
}
// What must happen between a product and SumAt.
TEMPER_VEC void SettleSums(Sums&) {}
TEMPER_VEC Floats SumAt(const Sums& sum, int i, int v) {
  return sum[i][v];
}

// sum[i] += sum over steps of a[i * kRowWords + s * step_words] * step s of a panel of kColumns lines.
template <class Math, int64_t kRowWords>
TEMPER_VEC void AddStrided(const int* a, int64_t step_words, const typename Math::PanelWord* panel, int64_t steps,
                           Sums& sum) {
  for (int64_t s = 0; s < steps; ++s) {
    const typename Math::Words b0 = Math::LoadWords(panel), b1 = Math::LoadWords(panel + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const typename Math::Words ai = Math::Broadcast(a + i * kRowWords);
      sum[i][0] = Math::MultiplyAdd(sum[i][0], ai, b0);
      sum[i][1] = Math::MultiplyAdd(sum[i][1], ai, b1);
    }
    a += step_words;
    panel += kColumns;
  }
}

// The same of rows of words, kRowWords apart.
template <class Math, int64_t kRowWords>
TEMPER_VEC void AddProduct(const int* rows, const typename Math::PanelWord* panel, int64_t steps, Sums& sum) {
  AddStrided<Math, kRowWords>(rows, 1, panel, steps, sum);
}

// Adds to kRows rows of sums, which belong to keys from `key` on: a panel of probabilities (or their gradients), of
// kAttentionBlock keys, times panels of the rows of queries, kColumns of E each. Steps are words of rows.
template <class Math>
TEMPER_VEC void AddToKeys(const int* panel, const char* row_panels, int64_t row_panel_bytes, int64_t first_step,
                          int64_t steps, int64_t key, int64_t E, float* sums) {
  const int64_t padded_E = (E + kColumns - 1) / kColumns * kColumns;
  float* const rows = sums + key * padded_E;
  for (int64_t e = 0; e < padded_E; e += kColumns) {
    const int* b = reinterpret_cast<const int*>(row_panels + e / kColumns * row_panel_bytes) + first_step * kColumns;
    Sums sum;
    LoadSums(rows + e, padded_E, sum);
    AddStrided<Math, 1>(panel + first_step * kAttentionBlock + key, kAttentionBlock, b, steps, sum);
    StoreSums(sum, rows + e, padded_E);
  }
}

}  // namespace
}  // namespace temper
