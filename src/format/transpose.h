// Copies a matrix into its transpose: how weights move between memory, out x in, and files that store them in x out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/shape.h"

namespace temper {

// Of a matrix's transpose, or a place in it; of a stack of matrices that of each.
inline Shape Transposed(const Shape& matrix) {
  TEMPER_CHECK(matrix.rank() == 2 || matrix.rank() == 3) << matrix.ToString() << " is no matrix and no stack";
  if (matrix.rank() == 3) return {matrix[0], matrix[2], matrix[1]};
  return {matrix[1], matrix[0]};
}

// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns; strides in elements of `size`
// bytes, which is 2 or 4. About the time of two copies.
void Transpose(const std::byte* from, int64_t rows, int64_t columns, int64_t from_stride, std::byte* to,
               int64_t to_stride, int64_t size);

}  // namespace temper
