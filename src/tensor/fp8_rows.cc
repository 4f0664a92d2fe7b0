// A matrix in FP8, as DeepSeek publishes it (DeepSeek-V3 technical report, 3.3): floats of 8 bits, e4m3fn (a sign, 4
// bits of exponent with bias 7, 3 of mantissa; no infinities, NaN is 0x7F), and a scale for each block of 128 x 128.
//
// A row here: from its front, its elements, as in files; then the scale of each block that it touches, in f32. Its last
// byte: where in its block the row begins, which is not 0 only for a part of the columns. Rows are a multiple of 16
// bytes long: 8.25 bits an element where they are long. The number that a kernel computes with is
// bf16(element * scale), everywhere, as transformers dequantises it (Fp8Dequantize in
// integrations/finegrained_fp8.py): the product is rounded to f32, then to bf16.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tensor/format_rule.h"

namespace temper {
namespace {

constexpr int64_t kFp8Block = 128;  // rows and columns that share a scale

// What the bits of an element mean.
constexpr std::array<float, 256> kFp8Elements = [] {
  std::array<float, 256> elements{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float x = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 8;
    for (int e = std::max(exponent, 1); e < 7; ++e) x /= 2;
    for (int e = 7; e < exponent; ++e) x *= 2;
    elements[static_cast<size_t>(bits)] = bits < 128 ? x : -x;
  }
  return elements;
}();

bool IsFp8NaN(std::byte element) {
  return (element & std::byte{0x7F}) == std::byte{0x7F};
}

// The most blocks that so many columns touch.
constexpr int64_t Fp8Blocks(int64_t columns) {
  return (columns + 2 * (kFp8Block - 1)) / kFp8Block;
}

constexpr int64_t Fp8RowBytes(int64_t columns) {
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = columns + Fp8Blocks(columns) * static_cast<int64_t>(sizeof(float)) + 1;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

FormatRun Fp8Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
  const int64_t place = static_cast<int64_t>(row[Fp8RowBytes(columns) - 1]) + begin;
  FormatRun run = {.elements = row + begin, .count = std::min(end - begin, kFp8Block - place % kFp8Block)};
  std::memcpy(&run.scale, row + columns + place / kFp8Block * static_cast<int64_t>(sizeof run.scale), sizeof run.scale);
  return run;
}

void Fp8Numbers(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
  while (begin < end) {
    const FormatRun run = Fp8Run(row, columns, begin, end);
    for (int64_t i = 0; i < run.count; ++i) {
      *out++ = ToBF16(kFp8Elements[static_cast<size_t>(run.elements[i])] * run.scale);
    }
    begin += run.count;
  }
}

bool WriteFp8Row(std::span<const std::byte> elements, std::span<const float> scales, int64_t begin, std::byte* out) {
  const auto columns = static_cast<int64_t>(elements.size());
  const int64_t place = begin % kFp8Block, blocks = (place + columns + kFp8Block - 1) / kFp8Block;
  std::memset(out + columns, 0, static_cast<size_t>(Fp8RowBytes(columns) - columns));
  if (columns == 0) return true;
  std::memcpy(out, elements.data(), elements.size());
  std::memcpy(out + columns, scales.data(), static_cast<size_t>(blocks) * sizeof(float));
  out[Fp8RowBytes(columns) - 1] = static_cast<std::byte>(place);
  const auto used = scales.first(static_cast<size_t>(blocks));
  return std::none_of(elements.begin(), elements.end(), IsFp8NaN) &&
         std::all_of(used.begin(), used.end(), [](float scale) { return std::isfinite(scale); });
}

constexpr FormatKey kFp8Keys[] = {{"weight_block_size", "[128, 128]"}, {"fmt", "\"e4m3\"", /*may_miss=*/true}};
constexpr std::string_view kFp8Scales[] = {"_scale_inv"};
constexpr StoredFormat kFp8Stored = {.method = "fp8",
                                     .keys = kFp8Keys,
                                     .stays_in_exports = true,
                                     .elements = "F8_E4M3",
                                     .scales = kFp8Scales,
                                     .block_rows = kFp8Block,
                                     .block_columns = kFp8Block,
                                     .write_row = WriteFp8Row};

}  // namespace

extern const FormatRule kFp8Format = {.name = "fp8",
                                      .title = "FP8",
                                      .row_bytes = Fp8RowBytes,
                                      .run = Fp8Run,
                                      .numbers = Fp8Numbers,
                                      .stored = &kFp8Stored};

}  // namespace temper
