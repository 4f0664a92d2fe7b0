// A matrix in NF4 with double quantisation (QLoRA), with the bits of bitsandbytes: 4 bits an element, an index into 16
// numbers between -1 and 1. A block of 64 elements shares the largest magnitude among them, its absmax. That is kept in
// 8 bits, too: an index into 256 numbers, times a scale that a group of 256 blocks shares, plus the mean of all. Blocks
// run over the elements of a whole tensor of a file, row after row, so one may begin in one row and end in the next.
//
// A row here has all that reads it, also where it holds a part of the columns. From its front: the indices of its
// elements, two a byte, the first in the upper half; those of the absmax of each block that it touches. From its end:
// the mean; the scale of each group that it touches, the first one last; where in its block the row begins; where in
// its group that block lies. Rows are a multiple of 16 bytes long: 4.13 to 4.2 bits an element where they are long.
// The number that a kernel computes with is bf16(index's number * absmax), everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/dynamic_map.h"

namespace temper {

inline constexpr int64_t kNf4Block = 64;   // elements
inline constexpr int64_t kNf4Group = 256;  // blocks

// What an element's index means, times its block's absmax (quantiles of the normal distribution; QLoRA, appendix E).
alignas(64) inline constexpr float kNf4Numbers[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
// What the index of an absmax means, in ascending order.
inline constexpr const std::array<float, 256>& kNf4AbsmaxNumbers = kSignedDynamicMap;

// An absmax from what is kept of it.
inline float Nf4Absmax(uint8_t index, float scale, float mean) {
  const float product = kNf4AbsmaxNumbers[index] * scale;
  return product + mean;
}

// The most blocks that so many columns touch, and the most groups that so many blocks do.
constexpr int64_t Nf4Blocks(int64_t columns) {
  return (columns + 2 * (kNf4Block - 1)) / kNf4Block;
}
constexpr int64_t Nf4Groups(int64_t blocks) {
  return (blocks + 2 * (kNf4Group - 1)) / kNf4Group;
}
// Of the two places, the scales and the mean.
constexpr int64_t Nf4EndBytes(int64_t columns) {
  return 2 + (Nf4Groups(Nf4Blocks(columns)) + 1) * static_cast<int64_t>(sizeof(float));
}
constexpr int64_t Nf4RowBytes(int64_t columns) {
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = (columns + 1) / 2 + Nf4Blocks(columns) + Nf4EndBytes(columns);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Reads a row.
class Nf4Row {
 public:
  Nf4Row(const std::byte* row, int64_t columns)
      : row_(row), absmaxes_(row + (columns + 1) / 2), end_(row + Nf4RowBytes(columns)), mean_(FloatAt(1)) {
    const std::byte* const places = end_ - Nf4EndBytes(columns);
    in_block_ = static_cast<int64_t>(places[0]);
    in_group_ = static_cast<int64_t>(places[1]);
  }
  const std::byte* indices() const { return row_; }
  int Index(int64_t column) const {
    const int pair = static_cast<int>(row_[column / 2]);
    return column % 2 == 0 ? pair >> 4 : pair & 15;
  }
  bf16 Number(int64_t column) const { return ToBF16(kNf4Numbers[Index(column)] * Absmax(BlockOf(column))); }

  int64_t InBlock(int64_t column) const { return (in_block_ + column) % kNf4Block; }  // where in its block it lies
  // Calls fn(absmax, begin, end) for each run of columns of [begin, end) that lie in one block.
  template <class Fn>
  void ForBlocks(int64_t begin, int64_t end, const Fn& fn) const {
    for (int64_t block = BlockOf(begin); begin < end; ++block) {
      const int64_t next = std::min(end, (block + 1) * kNf4Block - in_block_);
      fn(Absmax(block), begin, next);
      begin = next;
    }
  }

 private:
  float FloatAt(int64_t from_end) const {
    float x;
    std::memcpy(&x, end_ - from_end * static_cast<int64_t>(sizeof x), sizeof x);
    return x;
  }
  int64_t BlockOf(int64_t column) const { return (in_block_ + column) / kNf4Block; }  // of those that the row touches
  float Absmax(int64_t block) const {
    return Nf4Absmax(static_cast<uint8_t>(absmaxes_[block]), FloatAt(2 + (in_group_ + block) / kNf4Group), mean_);
  }

  const std::byte *row_, *absmaxes_, *end_;
  float mean_;
  int64_t in_block_, in_group_;  // where the row begins, and where that block lies
};

// The absmaxes of a whole tensor, quantised.
struct Nf4Absmaxes {
  std::vector<uint8_t> indices;  // by block
  std::vector<float> scales;     // by group
  float mean = 0;
};
// `absmax`: of each block. The mean is that of their exact sum; bitsandbytes' depends on the threads or the GPU that
// sum it, and has these bits where its sum is exact; elsewhere, an absmax may take another index (docs/correctness.md).
Nf4Absmaxes QuantiseAbsmaxes(std::span<const float> absmax);

// Of elements of one block with this absmax: the index of the nearest number, the lower of two. `whole`: the block has
// all of its 64 elements (bitsandbytes multiplies by 1 / absmax there, and divides in the last block of a tensor).
void Nf4Indices(std::span<const float> x, float absmax, bool whole, uint8_t* indices);

// Writes a row of indices.size() columns, whose first one is element `at` of the tensor. REQUIRES: `out` has
// Nf4RowBytes(indices.size()) bytes.
void WriteNf4Row(std::span<const uint8_t> indices, int64_t at, const Nf4Absmaxes& absmaxes, std::byte* out);

}  // namespace temper
