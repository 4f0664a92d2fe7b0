// A matrix in MXFP4 (OCP Microscaling Formats 1.0), as OpenAI publishes the experts of gpt-oss: floats of 4 bits, e2m1,
// and a power of two in 8 bits, e8m0, for each block of 32 columns of a row.
//
// A row here: from its front, its elements, two a byte, the first in the lower half, as in files; then the scale of
// each block that it touches. Its last byte: where in its block the row begins, which is not 0 only for a part of the
// columns. Rows are a multiple of 16 bytes long: 4.25 to 4.3 bits an element where they are long. The number that a
// kernel computes with is bf16(element * 2^(scale - 127)), everywhere, as transformers dequantises it; it is exact
// unless it is too large or too small for bf16.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace temper {

inline constexpr int64_t kMxfp4Block = 32;  // elements

// By the byte of a block's scale: the numbers that its elements can be, by their bits.
using Mxfp4Numbers = std::array<bf16, 16>;
const std::array<Mxfp4Numbers, 256>& Mxfp4NumbersOfScales();

// The most blocks that so many columns touch.
constexpr int64_t Mxfp4Blocks(int64_t columns) {
  return (columns + 2 * (kMxfp4Block - 1)) / kMxfp4Block;
}
constexpr int64_t Mxfp4RowBytes(int64_t columns) {
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = (columns + 1) / 2 + Mxfp4Blocks(columns) + 1;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Reads a row.
class Mxfp4Row {
 public:
  Mxfp4Row(const std::byte* row, int64_t columns)
      : row_(row), scales_(row + (columns + 1) / 2), in_block_(static_cast<int64_t>(row[Mxfp4RowBytes(columns) - 1])) {}
  const std::byte* pairs() const { return row_; }
  int Index(int64_t column) const {
    const int pair = static_cast<int>(row_[column / 2]);
    return column % 2 == 0 ? pair & 15 : pair >> 4;
  }
  bf16 Number(int64_t column) const {
    return Mxfp4NumbersOfScales()[Scale(BlockOf(column))][static_cast<size_t>(Index(column))];
  }

  int64_t InBlock(int64_t column) const { return (in_block_ + column) % kMxfp4Block; }  // where in its block it lies
  // Calls fn(scale's byte, begin, end) for each run of columns of [begin, end) that lie in one block.
  template <class Fn>
  void ForBlocks(int64_t begin, int64_t end, const Fn& fn) const {
    for (int64_t block = BlockOf(begin); begin < end; ++block) {
      const int64_t next = std::min(end, (block + 1) * kMxfp4Block - in_block_);
      fn(Scale(block), begin, next);
      begin = next;
    }
  }

 private:
  int64_t BlockOf(int64_t column) const { return (in_block_ + column) / kMxfp4Block; }  // of those that the row touches
  size_t Scale(int64_t block) const { return static_cast<size_t>(scales_[block]); }

  const std::byte *row_, *scales_;
  int64_t in_block_;  // where the row begins
};

// Writes columns [begin, begin + columns) of a row, all of whose elements and scales are given as files have them.
// REQUIRES: `out` has Mxfp4RowBytes(columns) bytes.
void WriteMxfp4Row(std::span<const std::byte> pairs, std::span<const std::byte> scales, int64_t begin, int64_t columns,
                   std::byte* out);

}  // namespace temper
