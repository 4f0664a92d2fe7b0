// Column sums of a matrix: a gradient of a bias, and of a norm's weight from its partial rows.
#pragma once

#include "backend/gpu/gpu_api.h"
#include "tensor/dtype.h"

namespace temper::gpu {

// y_D = acc_D (may be nullptr, may be y_D) + the sums over rows of x_TD, in a fixed order. T: float or bf16.
template <class T>
Status SumColumns(const T* x_TD, int64_t rows, int64_t D, const float* acc_D, float* y_D, gpuStream_t stream);

// Rows whose sum is a partial row of a norm's d_w: the workspace rules of graph/ops count on it.
inline constexpr int64_t kPartialRows = 64;
inline int64_t NumPartialRows(int64_t rows) {
  return (rows + kPartialRows - 1) / kPartialRows;
}

}  // namespace temper::gpu
