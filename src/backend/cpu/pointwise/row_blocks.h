// How row ops divide rows among threads, and the column sums of partial rows (a fixed tree).
#pragma once

#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

// Rows that a thread takes at a time: a few, so that short batches reach every thread.
inline constexpr int64_t kRowsPerRange = 8;

// Partial rows of a parameter's gradient: one per kSumRowsBlock rows, for any number of threads.
inline int64_t PartialRows(int64_t rows) {
  return (rows + kSumRowsBlock - 1) / kSumRowsBlock;
}

// y_D = acc_D (may be nullptr, may be y_D) + column sums of x_TD.
template <class T>
void SumPartialRows(int threads, const VectorKernelsOf<T>& vectors, const T* x_TD, int64_t rows, int64_t D,
                    const float* acc_D, float* y_D) {
  ParallelBlocks(threads, D, kSumRowsColumns, [=, &vectors](int64_t begin, int64_t end) {
    vectors.sum_rows(x_TD + begin, rows, D, end - begin, acc_D == nullptr ? nullptr : acc_D + begin, y_D + begin);
  });
}

}  // namespace temper
