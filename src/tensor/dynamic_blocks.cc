#include "tensor/dynamic_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/dynamic_map.h"

namespace temper {
namespace {

// Magnitudes from 2^-24, below which no border lies, to 1 in bins of 2^16 bit patterns: 128 in each power of two.
constexpr uint32_t kLeastBits = 0x33800000, kOneBits = 0x3F800000, kInfiniteBits = 0x7F800000, kMagnitude = 0x7FFFFFFF;
constexpr int kBinShift = 16;
static_assert((kOneBits - kLeastBits) >> kBinShift == 3072);

// The dim whose elements, with all of the dims after it, are whole blocks; 0 if none are. `inner`: elements of one of
// its indices.
int DimOfBlocks(const Shape& shape, int64_t* inner) {
  *inner = 1;
  for (int d = shape.rank() - 1; d > 0; --d) {
    if (*inner * shape[d] % kDynamicBlock == 0) return d;
    *inner *= shape[d];
  }
  return 0;
}

}  // namespace

TensorType DynamicBlocksOf(const Shape& shape) {
  TEMPER_CHECK(shape.rank() > 0) << "blocks of a scalar";
  int64_t inner = 1;
  const int dim = DimOfBlocks(shape, &inner);
  Shape blocks = shape;
  blocks.set_dim(dim, (inner * shape[dim] + kDynamicBlock - 1) / kDynamicBlock * kDynamicBlockBytes);
  for (int d = dim + 1; d < shape.rank(); ++d) blocks.set_dim(d, 1);
  return {DType::kU8, blocks};
}

bool HasWholeBlocks(const Shape& whole, const Box& part) {
  if (part.shape == whole) return true;
  int64_t inner = 1;
  const int dim = DimOfBlocks(whole, &inner);
  for (int d = dim + 1; d < whole.rank(); ++d) {
    if (part.shape[d] != whole[d]) return false;
  }
  return part.begin[dim] * inner % kDynamicBlock == 0 && part.shape[dim] * inner % kDynamicBlock == 0;
}

Shape BeginOfBlocks(const Shape& whole, const Shape& begin) {
  int64_t inner = 1;
  const int dim = DimOfBlocks(whole, &inner);
  Shape at = begin;
  TEMPER_CHECK(begin[dim] * inner % kDynamicBlock == 0) << begin.ToString() << " of " << whole.ToString();
  at.set_dim(dim, begin[dim] * inner / kDynamicBlock * kDynamicBlockBytes);
  for (int d = dim + 1; d < whole.rank(); ++d) at.set_dim(d, 0);
  return at;
}

const DynamicBlocks& DynamicBlocks::Signed() {
  static const DynamicBlocks blocks(kSignedDynamicMap);
  return blocks;
}

const DynamicBlocks& DynamicBlocks::Unsigned() {
  static const DynamicBlocks blocks(kUnsignedDynamicMap);
  return blocks;
}

DynamicBlocks::DynamicBlocks(const std::array<float, 256>& numbers) : numbers_(numbers) {
  for (size_t i = 0; i < 255; ++i) borders_[i] = (numbers[i] + numbers[i + 1]) / 2;
  borders_[255] = std::numeric_limits<float>::infinity();
  const auto below = [&](float x) {
    return std::lower_bound(borders_.begin(), borders_.end(), x) - borders_.begin();  // borders below x
  };
  for (uint32_t bin = 0; bin <= 3072; ++bin) {
    const uint32_t least = bin == 0 ? 0 : kLeastBits + (bin << kBinShift);
    const uint32_t most = bin == 3072 ? kOneBits : kLeastBits + ((bin + 1) << kBinShift) - 1;
    for (const bool negative : {false, true}) {
      const float from = std::bit_cast<float>(least), to = std::bit_cast<float>(most);
      const auto first = below(negative ? -to : from), last = below(negative ? -from : to);
      TEMPER_CHECK(last - first <= 1) << "two borders between " << from << " and " << to;
      first_[negative][bin] = static_cast<uint8_t>(first);
    }
  }
}

uint8_t DynamicBlocks::CodeOf(float x) const {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t bin = (std::clamp(bits & kMagnitude, kLeastBits, kOneBits) - kLeastBits) >> kBinShift;
  const uint8_t first = first_[bits >> 31][bin];
  return static_cast<uint8_t>(first + (borders_[first] < x));
}

void DynamicBlocks::Read(const std::byte* block, int64_t n, float* x) const {
  float absmax;
  std::memcpy(&absmax, block + kDynamicBlock, sizeof absmax);
  for (int64_t i = 0; i < n; ++i) x[i] = numbers_[static_cast<uint8_t>(block[i])] * absmax;
}

void DynamicBlocks::Write(const float* x, int64_t n, std::byte* block) const {
  uint32_t most = 0;  // bits of magnitudes are ordered as these are, NaN above all
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & kMagnitude);
  const float absmax = std::bit_cast<float>(most);
  std::memcpy(block + kDynamicBlock, &absmax, sizeof absmax);
  if (most >= kInfiniteBits) {
    std::memset(block, 0, kDynamicBlock);
    return;
  }
  constexpr float kLeast = 1e-38f;  // bitsandbytes': the inverse of a smaller one would be infinite
  const float inverse = 1 / std::max(absmax, kLeast);
  for (int64_t i = 0; i < n; ++i) block[i] = static_cast<std::byte>(CodeOf(x[i] * inverse));
  std::memset(block + n, 0, static_cast<size_t>(kDynamicBlock - n));
}

}  // namespace temper
