// A matrix as 8-bit integers with one f32 scale per row (absmax / 127, as in LLM.int8's weights). A row is its
// integers, then padding, then the scale in its last 4 bytes; it is a multiple of 16 bytes long, so that rows of
// vectors stay aligned. The number that a kernel computes with is bf16(scale * integer), everywhere.
//
// Rounding error: at most half a scale, and bf16's half place of the result on top.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/dtype.h"

namespace temper {

constexpr int64_t Int8RowBytes(int64_t columns) {
  constexpr int64_t kAlignment = 16;
  return (columns + static_cast<int64_t>(sizeof(float)) + kAlignment - 1) / kAlignment * kAlignment;
}
// Where the scale lies in a row.
constexpr int64_t Int8ScaleAt(int64_t columns) {
  return Int8RowBytes(columns) - static_cast<int64_t>(sizeof(float));
}

inline float ReadScale(const std::byte* scale) {
  float value;
  std::memcpy(&value, scale, sizeof value);
  return value;
}

inline bf16 FromInt8(int8_t q, float scale) {
  return ToBF16(scale * static_cast<float>(q));
}

// The scale of a row with these elements. Infinite or NaN if one of them is.
float Int8Scale(std::span<const float> row);
// Writes a row of x.size() columns: the integers nearest to x / scale, ties to even, and the scale. `x` may be a part
// of the row that the scale is of. REQUIRES: the scale is finite; out has Int8RowBytes(x.size()) bytes.
void WriteInt8Row(std::span<const float> x, float scale, std::byte* out);

}  // namespace temper
