// A matrix in integers of 4 bits with a scale and a zero for each group of 32, 64 or 128 columns of a row, as GPTQ, AWQ
// and compressed-tensors (pack-quantized) publish models.
//
// A row here: from its front, its elements, two a byte, the first in the lower half; the scale of each group that it
// touches, in f32; the zero of each, a byte. Its last byte: where in its group the row begins, which is not 0 only for
// a part of the columns. Rows are a multiple of 16 bytes long: of groups of 128 4.3 to 4.4 bits an element where they
// are long, of 32 5.3. The number that a kernel computes with is bf16(scale * (element - zero)), everywhere: scales in
// f16 or bf16 make the product exact in f32, so that it is rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/element_format.h"

namespace temper {

// The format of groups of so many columns. REQUIRES: HasInt4Groups.
ElementFormat Int4Groups(int64_t group);
bool HasInt4Groups(int64_t group);

// Writes columns [begin, begin + columns) of a row, all of whose elements (two a byte), scales and zeros are given.
// False: a scale is no number. REQUIRES: `out` has the bytes of a row of so many columns.
bool WriteInt4Row(int64_t group, std::span<const std::byte> pairs, std::span<const float> scales,
                  std::span<const uint8_t> zeros, int64_t begin, int64_t columns, std::byte* out);

}  // namespace temper
