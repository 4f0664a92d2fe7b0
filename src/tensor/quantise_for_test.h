// For tests: a part of a matrix, or of a stack of them, in a quantised format, from the whole.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/block_decoders.h"
#include "tensor/format_rule.h"
#include "tensor/int4_rows.h"
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

// A row in integers of 4 bits: a group's numbers lie between its smallest and its largest.
struct Int4Stored {
  std::vector<std::byte> pairs;
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
};
inline Int4Stored Int4OfRow(int64_t group, std::span<const float> x) {
  Int4Stored row{std::vector<std::byte>((x.size() + 1) / 2), {}, {}};
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(group)) {
    const auto some = x.subspan(first, std::min(static_cast<size_t>(group), x.size() - first));
    const float low = std::min(0.f, *std::min_element(some.begin(), some.end())),
                high = std::max(0.f, *std::max_element(some.begin(), some.end()));
    const float scale = ToFloat(ToF16(std::max(high - low, 1e-4f) / 15));
    const int zero = std::clamp(static_cast<int>(std::nearbyint(-low / scale)), 0, 15);
    row.scales.push_back(scale);
    row.zeros.push_back(static_cast<uint8_t>(zero));
    for (size_t i = 0; i < some.size(); ++i) {
      const int element = std::clamp(static_cast<int>(std::nearbyint(some[i] / scale)) + zero, 0, 15);
      row.pairs[(first + i) / 2] |= static_cast<std::byte>(element << ((first + i) % 2 == 0 ? 0 : 4));
    }
  }
  return row;
}

// A row in blocks of a GGUF file, as if there were columns up to a whole block: random elements, which do not come near
// x, but follow from it; and scales with which they are no larger than some ones.
inline std::vector<std::byte> GgufBlocksOfRow(const BlockDecoder& blocks, std::span<const float> x) {
  std::mt19937 engine(std::bit_cast<uint32_t>(x.empty() ? 0 : x[0]));
  const auto count = (std::ssize(x) + blocks.elements - 1) / blocks.elements;
  std::vector<std::byte> row(static_cast<size_t>(count * blocks.bytes));
  for (std::byte& byte : row) byte = static_cast<std::byte>(engine());
  std::vector<float> numbers(static_cast<size_t>(blocks.elements));
  for (int64_t b = 0; b < count; ++b) {
    std::byte* const block = row.data() + b * blocks.bytes;
    const auto set = [&](float scale) {
      const f16 bits = ToF16(scale);
      for (int64_t i = 0; i < blocks.scales; ++i) {
        std::memcpy(block + blocks.scales_at + 2 * i, &bits, sizeof bits);
      }
    };
    set(1);
    blocks.decode(block, numbers.data(), blocks.elements);
    float largest = 1;
    for (const float n : numbers) largest = std::max(largest, std::fabs(n));
    set((engine() % 2 == 0 ? 2 : -2) / largest);
  }
  return row;
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
  for (const int64_t group : {32, 64, 128}) {
    if (format != Int4Groups(group)) continue;
    for (int64_t r = 0; r < part[0]; ++r) {
      const Int4Stored row =
          Int4OfRow(group, x.subspan(static_cast<size_t>((begin[0] + r) * whole[1]), static_cast<size_t>(whole[1])));
      TEMPER_CHECK(WriteInt4Row(group, row.pairs, row.scales, row.zeros, begin[1], part[1],
                                bytes.data() + r * format.RowBytes(part[1])));
    }
    return bytes;
  }
  for (uint32_t id = 0; id < 32; ++id) {
    const BlockDecoder* const blocks = FindBlockDecoder(id);
    if (blocks == nullptr || blocks->name != RuleOf(format).name) continue;
    const int64_t n = blocks->elements, place = begin[1] % n;
    TEMPER_CHECK(place == 0 || part[1] % n != 0) << "begins within a block";
    for (int64_t r = 0; r < part[0]; ++r) {
      const auto row = GgufBlocksOfRow(
          *blocks, x.subspan(static_cast<size_t>((begin[0] + r) * whole[1]), static_cast<size_t>(whole[1])));
      std::byte* const out = bytes.data() + r * format.RowBytes(part[1]);
      const int64_t first = begin[1] / n, last = (begin[1] + part[1] + n - 1) / n;
      std::copy_n(row.data() + first * blocks->bytes, (last - first) * blocks->bytes, out);
      if (place != 0) out[format.RowBytes(part[1]) - 1] = static_cast<std::byte>(place);
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
