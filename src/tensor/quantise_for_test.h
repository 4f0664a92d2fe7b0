// For tests: a part of a matrix, or of a stack of them, in a quantised format, from the whole.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/format_rule.h"
#include "tensor/int8_rows.h"
#include "tensor/mxfp4_rows.h"
#include "tensor/nf4_rows.h"
#include "tensor/shape.h"

namespace temper {

// A row of a file in MXFP4: elements two a byte, and scales; as if there were columns up to a whole block, of 0. A
// scale is the power of two with which the largest magnitude becomes one in [4, 8); elements are the nearest.
struct Mxfp4Stored {
  std::vector<std::byte> pairs, scales;
};
inline Mxfp4Stored Mxfp4OfRow(std::span<const float> x) {
  const size_t blocks = (x.size() + kMxfp4Block - 1) / kMxfp4Block;
  Mxfp4Stored row{std::vector<std::byte>(blocks * kMxfp4Block / 2), std::vector<std::byte>(blocks)};
  for (size_t b = 0; b < blocks; ++b) {
    const auto block = x.subspan(b * kMxfp4Block, std::min<size_t>(kMxfp4Block, x.size() - b * kMxfp4Block));
    float largest = 0;
    for (const float v : block) largest = std::max(largest, std::fabs(v));
    const int scale = largest == 0 ? 0 : std::clamp(std::ilogb(largest) - 2 + 127, 0, 254);
    row.scales[b] = static_cast<std::byte>(scale);
    const Mxfp4Numbers& numbers = Mxfp4NumbersOfScales()[static_cast<size_t>(scale)];
    for (size_t i = 0; i < block.size(); ++i) {
      const auto off = [&](bf16 number) { return std::fabs(ToFloat(number) - block[i]); };
      const auto nearest =
          std::min_element(numbers.begin(), numbers.end(), [&](bf16 a, bf16 b_) { return off(a) < off(b_); }) -
          numbers.begin();
      row.pairs[(b * kMxfp4Block + i) / 2] |= static_cast<std::byte>(nearest << (i % 2 == 0 ? 0 : 4));
    }
  }
  return row;
}

// The FP8 element (e4m3) nearest to x, ties to even, of magnitudes up to 448.
inline std::byte Fp8Element(float x) {
  const float a = std::fabs(x);
  const int e = std::max(a > 0 ? std::ilogb(a) : -6, -6);                       // of its place: of the smallest, -6
  const auto eighths = static_cast<int>(std::nearbyint(std::ldexp(a, 3 - e)));  // 8 to 16; below 8 only of the smallest
  const int bits = std::min(8 * (e + 6) + eighths, 0x7E);                       // 16 eighths are the next exponent's 8
  return static_cast<std::byte>(bits | (std::signbit(x) ? 0x80 : 0));
}
// A matrix in FP8, as files have it: a scale for each block of 128 x 128, with which the largest magnitude becomes 448.
struct Fp8Stored {
  std::vector<std::byte> elements;
  std::vector<float> scales;
};
inline Fp8Stored Fp8OfMatrix(std::span<const float> x, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 128;
  const int64_t across = (columns + kBlock - 1) / kBlock;
  Fp8Stored stored{{}, std::vector<float>(static_cast<size_t>((rows + kBlock - 1) / kBlock * across))};
  const auto scale = [&](int64_t i) -> float& {
    return stored.scales[static_cast<size_t>(i / columns / kBlock * across + i % columns / kBlock)];
  };
  for (int64_t i = 0; i < std::ssize(x); ++i) scale(i) = std::max(scale(i), std::fabs(x[static_cast<size_t>(i)]) / 448);
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    stored.elements.push_back(Fp8Element(scale(i) > 0 ? x[static_cast<size_t>(i)] / scale(i) : 0));
  }
  return stored;
}

// Rows and columns from `begin` on, as many as `part` has, of the matrix `x` of shape `whole`. Of a stack each matrix
// has scales of its own.
inline std::vector<std::byte> Quantised(ElementFormat format, std::span<const float> x, const Shape& whole,
                                        const Shape& begin, const Shape& part) {
  std::vector<std::byte> bytes;
  if (whole.rank() == 3) {
    const auto matrix = static_cast<size_t>(whole[1] * whole[2]);
    for (int64_t m = begin[0]; m < begin[0] + part[0]; ++m) {
      const auto one = Quantised(format, x.subspan(static_cast<size_t>(m) * matrix, matrix), {whole[1], whole[2]},
                                 {begin[1], begin[2]}, {part[1], part[2]});
      bytes.insert(bytes.end(), one.begin(), one.end());
    }
    return bytes;
  }
  bytes.resize(static_cast<size_t>(TensorType{format, part}.bytes().v));
  if (const StoredFormat* file = RuleOf(format).stored; file != nullptr && file->write_row != nullptr) {
    const Fp8Stored stored = Fp8OfMatrix(x, whole[0], whole[1]);
    const int64_t across = (whole[1] + 127) / 128;
    for (int64_t r = 0; r < part[0]; ++r) {
      const auto at = static_cast<size_t>((begin[0] + r) * whole[1] + begin[1]);
      const auto scale = static_cast<size_t>((begin[0] + r) / 128 * across + begin[1] / 128);
      TEMPER_CHECK(file->write_row(std::span(stored.elements).subspan(at, static_cast<size_t>(part[1])),
                                   std::span(stored.scales).subspan(scale), begin[1],
                                   bytes.data() + r * format.RowBytes(part[1])));
    }
    return bytes;
  }
  std::vector<float> absmax(static_cast<size_t>((whole.elements() + kNf4Block - 1) / kNf4Block));
  for (size_t i = 0; i < x.size(); ++i) absmax[i / kNf4Block] = std::max(absmax[i / kNf4Block], std::fabs(x[i]));
  const Nf4Absmaxes absmaxes = QuantiseAbsmaxes(absmax);
  for (int64_t r = 0; r < part[0]; ++r) {
    std::byte* const out = bytes.data() + r * format.RowBytes(part[1]);
    const int64_t row = begin[0] + r, at = row * whole[1] + begin[1];
    const auto kept = x.subspan(static_cast<size_t>(at), static_cast<size_t>(part[1]));
    const auto all = x.subspan(static_cast<size_t>(row * whole[1]), static_cast<size_t>(whole[1]));
    if (format == ElementFormat::Int8Rows()) {
      WriteInt8Row(kept, Int8Scale(all), out);
      continue;
    }
    if (format == ElementFormat::Mxfp4()) {
      const Mxfp4Stored stored = Mxfp4OfRow(all);
      WriteMxfp4Row(stored.pairs, stored.scales, begin[1], part[1], out);
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
