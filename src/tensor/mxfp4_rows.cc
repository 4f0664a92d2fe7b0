#include "tensor/mxfp4_rows.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// What an element's bits mean: a sign, two bits of exponent, one of mantissa.
constexpr float kElements[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

FormatRun Mxfp4Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
  FormatRun run;
  const Mxfp4Row reader(row, columns);
  reader.ForBlocks(begin, std::min(end, begin + kMxfp4Block - reader.InBlock(begin)),
                   [&](size_t scale, int64_t first, int64_t last) {
                     run = {.elements = reader.pairs() + first / 2,
                            .count = last - first,
                            .numbers = Mxfp4NumbersOfScales()[scale].data()};
                   });
  return run;
}

void Mxfp4NumbersOf(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
  const Mxfp4Row reader(row, columns);
  for (int64_t c = begin; c < end; ++c) *out++ = reader.Number(c);
}

// format/mxfp4_tensor.h reads it.
constexpr StoredFormat kMxfp4Stored = {.method = "mxfp4", .of_experts = true, .stays_in_exports = true};

}  // namespace

extern const FormatRule kMxfp4Format = {.name = "mxfp4",
                                        .title = "MXFP4",
                                        .row_bytes = Mxfp4RowBytes,
                                        .elements_in_byte = 2,
                                        .run = Mxfp4Run,
                                        .numbers = Mxfp4NumbersOf,
                                        .stored = &kMxfp4Stored};

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
