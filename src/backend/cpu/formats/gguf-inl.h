// tensor/gguf_rows.cc: blocks of GGUF files. Elements of a block become integers of 8 bits first, then step * q, or
// step * q + shift, in f32 with the bits of tensor/block_decoders.cc, and bf16.
#pragma once

#include <cstring>

#include "tensor/block_layout.h"

namespace temper {
namespace {

TEMPER_VEC float FloatOf(f16 x) {
  return _cvtsh_ss(x.bits);
}

// Elements [0, n) that share a step. REQUIRES: n is a multiple of kLanes.
TEMPER_VEC void ReadSteps(const int8_t* q, int64_t n, float step, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats x = FloatsOfSigned(LoadBytes(reinterpret_cast<const std::byte*>(q + i), Full()));
    StoreExact(reinterpret_cast<bf16*>(out + i), x * Set(step), Full());
  }
}
TEMPER_VEC void ReadShifted(const int8_t* q, int64_t n, float step, float shift, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats x = FloatsOfSigned(LoadBytes(reinterpret_cast<const std::byte*>(q + i), Full()));
    StoreExact(reinterpret_cast<bf16*>(out + i), x * Set(step) + Set(shift), Full());
  }
}

// Elements i and i + 16 of a small block share a byte; bit 4 of element i is bit i of `high`, if that is there.
TEMPER_VEC void SmallElements(const uint8_t (&low)[kSmallBlock / 2], const uint8_t* high, int zero,
                              int8_t (&q)[kSmallBlock]) {
  constexpr int kHalf = kSmallBlock / 2;
  uint32_t bits = 0;
  if (high != nullptr) std::memcpy(&bits, high, sizeof bits);
  for (int i = 0; i < kHalf; ++i) {
    q[i] = static_cast<int8_t>(((low[i] & 15) | (bits >> i & 1) << 4) - static_cast<uint32_t>(zero));
    q[i + kHalf] = static_cast<int8_t>(((low[i] >> 4) | (bits >> (i + kHalf) & 1) << 4) - static_cast<uint32_t>(zero));
  }
}

TEMPER_VEC void ReadBlock(const BlockQ8& block, uint16_t* out) {
  ReadSteps(block.q, kSmallBlock, FloatOf(block.d), out);
}
TEMPER_VEC void ReadBlock(const BlockQ40& block, uint16_t* out) {
  alignas(32) int8_t q[kSmallBlock];
  SmallElements(block.low, nullptr, 8, q);
  ReadSteps(q, kSmallBlock, FloatOf(block.d), out);
}
TEMPER_VEC void ReadBlock(const BlockQ41& block, uint16_t* out) {
  alignas(32) int8_t q[kSmallBlock];
  SmallElements(block.low, nullptr, 0, q);
  ReadShifted(q, kSmallBlock, FloatOf(block.d), FloatOf(block.m), out);
}
TEMPER_VEC void ReadBlock(const BlockQ50& block, uint16_t* out) {
  alignas(32) int8_t q[kSmallBlock];
  SmallElements(block.low, block.high, 16, q);
  ReadSteps(q, kSmallBlock, FloatOf(block.d), out);
}
TEMPER_VEC void ReadBlock(const BlockQ51& block, uint16_t* out) {
  alignas(32) int8_t q[kSmallBlock];
  SmallElements(block.low, block.high, 0, q);
  ReadShifted(q, kSmallBlock, FloatOf(block.d), FloatOf(block.m), out);
}

// Eight scales and eight minima of six bits each; the upper two bits of the last four lie with the first four.
TEMPER_VEC void SixBits(const uint8_t (&packed)[12], uint8_t (&scales)[8], uint8_t (&minima)[8]) {
  uint32_t a, b, c;
  std::memcpy(&a, packed, 4);
  std::memcpy(&b, packed + 4, 4);
  std::memcpy(&c, packed + 8, 4);
  constexpr uint32_t kSix = 0x3F3F3F3F, kFour = 0x0F0F0F0F, kTwo = 0x03030303;
  const uint32_t of_scales[2] = {a & kSix, (c & kFour) | (a >> 6 & kTwo) << 4};
  const uint32_t of_minima[2] = {b & kSix, (c >> 4 & kFour) | (b >> 6 & kTwo) << 4};
  std::memcpy(scales, of_scales, 8);
  std::memcpy(minima, of_minima, 8);
}

// Of 64 elements i and i + 32 share a byte. Bit 4 of element 32 g + i is bit g of high[i], if that is there.
template <class Block>
TEMPER_VEC void ReadGroups32(const Block& block, const uint8_t* high, uint16_t* out) {
  constexpr int kGroup = 32;
  uint8_t scales[8], minima[8];
  SixBits(block.scales, scales, minima);
  const float d = FloatOf(block.d), dmin = FloatOf(block.dmin);
  for (int g = 0; g < kSuperBlock / kGroup; ++g) {
    alignas(32) int8_t q[kGroup];
    const uint8_t* const low = block.low + g / 2 * kGroup;
    const int by = g % 2 * 4;
    for (int i = 0; i < kGroup; ++i) {
      const int bits = low[i] >> by & 15;
      q[i] = static_cast<int8_t>(high == nullptr ? bits : bits | (high[i] >> g & 1) << 4);
    }
    ReadShifted(q, kGroup, d * static_cast<float>(scales[g]), -(dmin * static_cast<float>(minima[g])),
                out + g * kGroup);
  }
}
TEMPER_VEC void ReadBlock(const BlockQ4K& block, uint16_t* out) {
  ReadGroups32(block, nullptr, out);
}
TEMPER_VEC void ReadBlock(const BlockQ5K& block, uint16_t* out) {
  ReadGroups32(block, block.high, out);
}

TEMPER_VEC void ReadBlock(const BlockQ6K& block, uint16_t* out) {
  constexpr int kGroup = 16, kQuarter = 32, kPart = kSuperBlock / 2;
  const float d = FloatOf(block.d);
  for (int part = 0; part < 2; ++part) {
    const uint8_t *const low = block.low + part * kPart / 2, *const high = block.high + part * kPart / 4;
    alignas(32) int8_t q[kPart];
    for (int i = 0; i < kQuarter; ++i) {
      const int bits = high[i];
      q[i] = static_cast<int8_t>(((low[i] & 15) | (bits & 3) << 4) - 32);
      q[i + 32] = static_cast<int8_t>(((low[i + 32] & 15) | (bits >> 2 & 3) << 4) - 32);
      q[i + 64] = static_cast<int8_t>(((low[i] >> 4) | (bits >> 4 & 3) << 4) - 32);
      q[i + 96] = static_cast<int8_t>(((low[i + 32] >> 4) | (bits >> 6) << 4) - 32);
    }
    for (int g = 0; g < kPart / kGroup; ++g) {
      const int8_t scale = block.scales[part * (kPart / kGroup) + g];
      ReadSteps(q + g * kGroup, kGroup, d * static_cast<float>(scale), out + part * kPart + g * kGroup);
    }
  }
}

template <class Block, int kElements>
void ReadBlocks(const FormatRun& run, uint16_t* out) {
  const auto* block = reinterpret_cast<const Block*>(run.elements);
  for (int64_t first = run.first, left = run.count; left > 0; ++block, first = 0) {
    const int64_t n = left < kElements - first ? left : kElements - first;
    if (n == kElements) {
      ReadBlock(*block, out);
    } else {
      uint16_t whole[kElements];
      ReadBlock(*block, whole);
      std::memcpy(out, whole + first, static_cast<size_t>(n) * sizeof *out);
    }
    out += n;
    left -= n;
  }
}

constexpr auto ReadQ80 = ReadBlocks<BlockQ8, kSmallBlock>;
constexpr auto ReadQ40 = ReadBlocks<BlockQ40, kSmallBlock>;
constexpr auto ReadQ41 = ReadBlocks<BlockQ41, kSmallBlock>;
constexpr auto ReadQ50 = ReadBlocks<BlockQ50, kSmallBlock>;
constexpr auto ReadQ51 = ReadBlocks<BlockQ51, kSmallBlock>;
constexpr auto ReadQ4K = ReadBlocks<BlockQ4K, kSuperBlock>;
constexpr auto ReadQ5K = ReadBlocks<BlockQ5K, kSuperBlock>;
constexpr auto ReadQ6K = ReadBlocks<BlockQ6K, kSuperBlock>;

}  // namespace
}  // namespace temper
