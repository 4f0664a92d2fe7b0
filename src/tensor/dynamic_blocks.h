// Tensors in 8 bits an element, as bitsandbytes keeps the states of optimizers (Dettmers et al. 2022, "8-bit Optimizers
// via Block-wise Quantization"): 256 elements, in row-major order, share the largest magnitude among them, their
// absmax. An element is the nearest number of a dynamic map (tensor/dynamic_map.h) times that.
//
// A block is 260 bytes: the codes of its elements, then its absmax. Blocks run over the elements of the whole tensor,
// so each mesh has the same ones, and a part of a tensor is kept only where it has whole blocks. A last block of fewer
// elements is as long as the others.
//
// The tensor of blocks is of bytes and has the rank of the one that it keeps, dim for dim, so that it is split where
// that is: [64, 512] becomes u8[64, 520]. Where the last dim does not hold whole blocks, they run over more dims:
// [64, 96] becomes u8[6240, 1].
//
// Rounding error, relative to the absmax: 0.0071 of numbers in [0.1, 1], with the map without negatives 0.0036; in each
// decade below a fifth of that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/shape.h"
#include "tensor/sharding.h"

namespace temper {

inline constexpr int64_t kDynamicBlock = 256;  // elements
inline constexpr int64_t kDynamicBlockBytes = kDynamicBlock + static_cast<int64_t>(sizeof(float));

// The type of the blocks of a tensor of that shape. REQUIRES: its rank is at least 1.
TensorType DynamicBlocksOf(const Shape& shape);
// Whether a part of a tensor of shape `whole` has whole blocks.
bool HasWholeBlocks(const Shape& whole, const Box& part);
// Where the blocks of a part begin in those of the whole. REQUIRES: HasWholeBlocks.
Shape BeginOfBlocks(const Shape& whole, const Shape& begin);

// Reads and writes blocks of one map. Thread-safe.
class DynamicBlocks {
 public:
  static const DynamicBlocks& Signed();
  static const DynamicBlocks& Unsigned();

  // Of the first `n` elements of a block; of elements that are all 0, 0. REQUIRES: n <= kDynamicBlock.
  void Read(const std::byte* block, int64_t n, float* x) const;
  // A number that is not finite makes the absmax so, and all of the block that is read back. Bytes of elements that are
  // not there become 0. REQUIRES: as Read.
  void Write(const float* x, int64_t n, std::byte* block) const;

  // The code of x / absmax: the number of borders, halfway between numbers, that are below it.
  uint8_t CodeOf(float x) const;
  const std::array<float, 256>& numbers() const { return numbers_; }
  float border(int i) const { return borders_[static_cast<size_t>(i)]; }  // between numbers i and i + 1

 private:
  explicit DynamicBlocks(const std::array<float, 256>& numbers);

  const std::array<float, 256>& numbers_;
  std::array<float, 256> borders_;  // the last one is infinite
  // By sign and the upper 16 bits of a magnitude: the code of the smallest number with these. At most one border lies
  // among them.
  std::array<std::array<uint8_t, 3073>, 2> first_;
};

}  // namespace temper
