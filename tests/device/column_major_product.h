// The product that libraries with cuBLASLt's interface compute, for their stand-ins in tests: D = alpha op(A) op(B) +
// beta C + bias, all column-major, written from the documentation of the interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace temper {

// CUDA and HIP use the same type numbers.
inline constexpr int32_t kColumnMajorF32 = 0, kColumnMajorBf16 = 14;

struct ColumnMajorLayout {
  int32_t type;
  int64_t rows, columns, leading;
  bool valid() const { return (type == kColumnMajorF32 || type == kColumnMajorBf16) && leading >= rows; }
};

struct ColumnMajorMatrix {
  ColumnMajorLayout layout;
  void* data;
  float Get(int64_t i) const {
    return layout.type == kColumnMajorBf16 ? ToFloat(static_cast<const bf16*>(data)[i])
                                           : static_cast<const float*>(data)[i];
  }
  void Put(int64_t i, float x) const {
    if (layout.type == kColumnMajorBf16) {
      static_cast<bf16*>(data)[i] = ToBF16(x);
    } else {
      static_cast<float*>(data)[i] = x;
    }
  }
};

struct ColumnMajorProduct {
  float alpha = 1, beta = 0;
  bool transpose_a = false, transpose_b = false;
  ColumnMajorMatrix a, b, c, d;
  ColumnMajorMatrix bias = {};  // one column; null data: none

  bool valid() const {
    const ColumnMajorLayout &la = a.layout, &lb = b.layout, &lc = c.layout, &ld = d.layout;
    return ld.rows == (transpose_a ? la.columns : la.rows) && ld.columns == (transpose_b ? lb.rows : lb.columns) &&
           (transpose_a ? la.rows : la.columns) == (transpose_b ? lb.columns : lb.rows) && lc.rows == ld.rows &&
           lc.columns == ld.columns && lc.type == ld.type;
  }
  // `parts` of the terms are summed by themselves: with more than one the last bits differ.
  void Compute(int64_t parts = 1) const {
    const int64_t rows = d.layout.rows, depth = transpose_a ? a.layout.rows : a.layout.columns;
    const int64_t of_part = (depth + parts - 1) / parts;
    std::vector<float> op_a(static_cast<size_t>(rows * depth)), sums(static_cast<size_t>(rows)), part(sums);
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < rows; ++i) {
        op_a[static_cast<size_t>(k * rows + i)] =
            a.Get(transpose_a ? k + i * a.layout.leading : i + k * a.layout.leading);
      }
    }
    for (int64_t j = 0; j < d.layout.columns; ++j) {
      sums.assign(sums.size(), 0);
      for (int64_t begin = 0; begin < depth; begin += of_part) {
        part.assign(part.size(), 0);
        for (int64_t k = begin; k < std::min(begin + of_part, depth); ++k) {
          const float x = b.Get(transpose_b ? j + k * b.layout.leading : k + j * b.layout.leading);
          const float* const column = op_a.data() + k * rows;
          for (int64_t i = 0; i < rows; ++i) part[static_cast<size_t>(i)] += column[i] * x;
        }
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
      }
      for (int64_t i = 0; i < rows; ++i) {
        float sum = sums[static_cast<size_t>(i)] * alpha;
        if (beta != 0) sum += beta * c.Get(i + j * c.layout.leading);
        if (bias.data != nullptr) sum += bias.Get(i);
        d.Put(i + j * d.layout.leading, sum);
      }
    }
  }
};

}  // namespace temper
