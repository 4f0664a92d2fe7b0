#include "checkpoint/merge.h"

#include <cstring>

namespace temper {
namespace {

// Four rows by two vectors: eight accumulators, a's two vectors and b's broadcast fit the sixteen registers of AVX2.
constexpr int64_t kRows = 4, kLanes = 8, kColumns = 2 * kLanes;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

// Plain vector arithmetic: a compiler without AVX2 splits each vector in two, with the same result per lane.
[[gnu::always_inline]] inline void Body(float* w, int64_t rows, int64_t columns, const float* b, const float* a,
                                        int64_t r, float scale) {
  const int64_t whole_columns = columns / kColumns * kColumns, whole_rows = rows / kRows * kRows;
  for (int64_t i = 0; i < whole_rows; i += kRows) {
    for (int64_t j = 0; j < whole_columns; j += kColumns) {
      Vector sum[kRows][2] = {};
      for (int64_t k = 0; k < r; ++k) {
        Vector a0, a1;
        std::memcpy(&a0, a + k * columns + j, sizeof a0);
        std::memcpy(&a1, a + k * columns + j + kLanes, sizeof a1);
        for (int64_t row = 0; row < kRows; ++row) {
          const float factor = b[(i + row) * r + k];
          sum[row][0] = sum[row][0] + factor * a0;
          sum[row][1] = sum[row][1] + factor * a1;
        }
      }
      for (int64_t row = 0; row < kRows; ++row) {
        float* out = w + (i + row) * columns + j;
        Vector w0, w1;
        std::memcpy(&w0, out, sizeof w0);
        std::memcpy(&w1, out + kLanes, sizeof w1);
        w0 = w0 + scale * sum[row][0];
        w1 = w1 + scale * sum[row][1];
        std::memcpy(out, &w0, sizeof w0);
        std::memcpy(out + kLanes, &w1, sizeof w1);
      }
    }
  }
  // What is left over at the bottom and at the right.
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < r; ++k) sum = sum + b[i * r + k] * a[k * columns + j];
      w[i * columns + j] = w[i * columns + j] + scale * sum;
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void MergeRowsAvx2(float* w, int64_t rows, int64_t columns, const float* b, const float* a,
                                           int64_t r, float scale) {
  Body(w, rows, columns, b, a, r, scale);
}
#endif

}  // namespace

void MergeRows(float* w, int64_t rows, int64_t columns, const float* b, const float* a, int64_t r, float scale) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return MergeRowsAvx2(w, rows, columns, b, a, r, scale);
#endif
  Body(w, rows, columns, b, a, r, scale);
}

void MergeRowsReference(float* w, int64_t rows, int64_t columns, const float* b, const float* a, int64_t r,
                        float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < r; ++k) sum += b[i * r + k] * a[k * columns + j];
      w[i * columns + j] += scale * sum;
    }
  }
}

}  // namespace temper
