// How the op adafactor sees a value and uses its workspace, for its rule and its kernels.
#pragma once

#include <algorithm>

#include "base/units.h"
#include "tensor/shape.h"

namespace temper {

// A value is `matrices` matrices [rows, columns]; a vector is one row, which has no factors. Rows are walked through in
// blocks, of one matrix each, whose number does not depend on threads. The workspace holds, each aligned: the factor of
// each row and of each column, f32; sums of squares of each block's columns, f32[blocks, columns]; two sums of squares
// of each block, double.
struct AdafactorWorkspace {
  explicit AdafactorWorkspace(const Shape& value)
      : rows(value.rank() < 2 ? 1 : value[-2]), columns(value.columns()), matrices(1) {
    for (int d = 0; d + 2 < value.rank(); ++d) matrices *= value[d];
    // At most 64 blocks of a matrix, so that their sums take little beside it.
    rows_per_block = std::max<int64_t>({(rows + 63) / 64, std::min<int64_t>(rows, 16), 1});
    blocks_per_matrix = (rows + rows_per_block - 1) / rows_per_block;
    const auto place = [&](int64_t bytes) {
      const Bytes begin = total;
      total += AlignUp(Bytes{bytes}, 64);
      return begin;
    };
    of_rows = place(matrices * rows * 4);
    of_columns = place(matrices * columns * 4);
    sums = place(blocks() * columns * 4);
    squares = place(blocks() * 2 * 8);
  }
  int64_t blocks() const { return matrices * blocks_per_matrix; }

  int64_t rows, columns, matrices, rows_per_block, blocks_per_matrix;
  Bytes of_rows, of_columns, sums, squares;  // where each begins
  Bytes total{};
};

}  // namespace temper
