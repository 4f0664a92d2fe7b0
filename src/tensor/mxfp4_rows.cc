#include "tensor/mxfp4_rows.h"

#include <cmath>
#include <cstring>

#include "base/check.h"

namespace temper {
namespace {

// What an element's bits mean: a sign, two bits of exponent, one of mantissa.
constexpr float kElements[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace

const std::array<Mxfp4Numbers, 256>& Mxfp4NumbersOfScales() {
  static const std::array<Mxfp4Numbers, 256> all = [] {
    std::array<Mxfp4Numbers, 256> numbers;
    for (int scale = 0; scale < 256; ++scale) {
      for (size_t k = 0; k < 16; ++k) {
        numbers[static_cast<size_t>(scale)][k] = ToBF16(std::ldexp(kElements[k], scale - 127));
      }
    }
    return numbers;
  }();
  return all;
}

void WriteMxfp4Row(std::span<const std::byte> pairs, std::span<const std::byte> scales, int64_t begin, int64_t columns,
                   std::byte* out) {
  const int64_t end = begin + columns, bytes = Mxfp4RowBytes(columns);
  TEMPER_CHECK(end <= 2 * std::ssize(pairs) && end <= kMxfp4Block * std::ssize(scales)) << begin << " + " << columns;
  std::memset(out, 0, static_cast<size_t>(bytes));
  if (columns == 0) return;
  if (begin % 2 == 0) {
    std::memcpy(out, pairs.data() + begin / 2, static_cast<size_t>((columns + 1) / 2));
    if (columns % 2 != 0) out[columns / 2] &= std::byte{15};
  } else {
    for (int64_t i = 0; i < columns; ++i) {
      const std::byte pair = pairs[static_cast<size_t>((begin + i) / 2)];
      const std::byte index = i % 2 == 0 ? pair >> 4 : pair & std::byte{15};
      out[i / 2] |= i % 2 == 0 ? index : index << 4;
    }
  }
  const int64_t first = begin / kMxfp4Block, last = (end - 1) / kMxfp4Block;
  std::memcpy(out + (columns + 1) / 2, scales.data() + first, static_cast<size_t>(last - first + 1));
  out[bytes - 1] = static_cast<std::byte>(begin % kMxfp4Block);
}

}  // namespace temper
