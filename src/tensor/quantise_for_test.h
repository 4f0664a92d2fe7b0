// For tests: a part of a matrix in a quantised format, from the whole matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/int8_rows.h"
#include "tensor/nf4_rows.h"
#include "tensor/shape.h"

namespace temper {

// Rows and columns from `begin` on, as many as `part` has, of the matrix `x` of shape `whole`.
inline std::vector<std::byte> Quantised(ElementFormat format, std::span<const float> x, const Shape& whole,
                                        const Shape& begin, const Shape& part) {
  std::vector<std::byte> bytes(static_cast<size_t>(TensorType{format, part}.bytes().v));
  std::vector<float> absmax(static_cast<size_t>((whole.elements() + kNf4Block - 1) / kNf4Block));
  for (size_t i = 0; i < x.size(); ++i) absmax[i / kNf4Block] = std::max(absmax[i / kNf4Block], std::fabs(x[i]));
  const Nf4Absmaxes absmaxes = QuantiseAbsmaxes(absmax);
  for (int64_t r = 0; r < part[0]; ++r) {
    std::byte* const out = bytes.data() + r * format.RowBytes(part[1]);
    const int64_t row = begin[0] + r, at = row * whole[1] + begin[1];
    const auto kept = x.subspan(static_cast<size_t>(at), static_cast<size_t>(part[1]));
    if (format == ElementFormat::Int8Rows()) {
      const auto all = x.subspan(static_cast<size_t>(row * whole[1]), static_cast<size_t>(whole[1]));
      WriteInt8Row(kept, Int8Scale(all), out);
      continue;
    }
    std::vector<uint8_t> indices(kept.size());
    for (int64_t i = 0; i < part[1];) {  // what lies in one block
      const int64_t block = (at + i) / kNf4Block, end = std::min((block + 1) * kNf4Block - at, part[1]);
      Nf4Indices(kept.subspan(static_cast<size_t>(i), static_cast<size_t>(end - i)), absmax[static_cast<size_t>(block)],
                 (block + 1) * kNf4Block <= whole.elements(), &indices[static_cast<size_t>(i)]);
      i = end;
    }
    WriteNf4Row(indices, at, absmaxes, out);
  }
  return bytes;
}

}  // namespace temper
