// How the op muon uses its workspace, for its rule and its kernels.
#pragma once

#include <algorithm>

#include "base/units.h"
#include "graph/ops/matrix_product.h"
#include "tensor/shape.h"

namespace temper {

// The Newton-Schulz iteration's operands, all f32, of a matrix [rows, columns]: x and the next x, of its shape; the
// products of its shorter sides, [side, side], and their square. Then sums of squares, a double for each 4096 elements,
// and what a product takes.
struct MuonWorkspace {
  static constexpr int64_t kElementsPerSum = 4096;

  explicit MuonWorkspace(const Shape& matrix)
      : rows(matrix[0]), columns(matrix[1]), side(std::min(rows, columns)), inner(std::max(rows, columns)) {
    const auto floats = [](int64_t n) { return AlignUp(Bytes{n * 4}, 64); };
    next_x = floats(rows * columns);
    gram = next_x * 2;
    square = gram + floats(side * side);
    sums = square + floats(side * side);
    product = sums + AlignUp(Bytes{(rows * columns + kElementsPerSum - 1) / kElementsPerSum * 8}, 64);
  }
  bool wide() const { return rows <= columns; }

  // The most that one of the three products takes.
  Bytes OfProducts(int threads) const {
    const Bytes of_gram = MatrixProductScratch(side, side, inner, DType::kF32, wide(), threads);
    const Bytes of_square = MatrixProductScratch(side, side, side, DType::kF32, true, threads);
    const Bytes of_next = MatrixProductScratch(rows, columns, side, DType::kF32, true, threads);
    return std::max({of_gram, of_square, of_next});
  }

  int64_t rows, columns, side, inner;
  Bytes next_x, gram, square, sums, product;  // where each begins; x is at 0
};

}  // namespace temper
