#include "tensor/block_decoders.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "tensor/block_layout.h"

namespace temper {
namespace {

template <class Block>
Block BlockAt(const std::byte* in, int64_t i) {
  Block block;
  std::memcpy(&block, in + i * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

// Calls decode(block, x) for each block.
template <class Block, int kElements, void (*kDecode)(const Block&, float*)>
void DecodeAll(const std::byte* in, float* x, int64_t n) {
  for (int64_t i = 0; i < n / kElements; ++i) kDecode(BlockAt<Block>(in, i), x + i * kElements);
}

// Of small blocks elements i and i + 16 share a byte.
constexpr int kHalf = kSmallBlock / 2;

void OfQ40(const BlockQ40& block, float* x) {
  const float d = ToFloat(block.d);
  for (int i = 0; i < kHalf; ++i) {
    x[i] = static_cast<float>((block.low[i] & 15) - 8) * d;
    x[i + kHalf] = static_cast<float>((block.low[i] >> 4) - 8) * d;
  }
}

void OfQ41(const BlockQ41& block, float* x) {
  const float d = ToFloat(block.d), m = ToFloat(block.m);
  for (int i = 0; i < kHalf; ++i) {
    x[i] = static_cast<float>(block.low[i] & 15) * d + m;
    x[i + kHalf] = static_cast<float>(block.low[i] >> 4) * d + m;
  }
}

// Bit 4 of element i of a block of 32.
int HighBit(const uint8_t (&high)[4], int i) {
  return (high[i / 8] >> (i % 8) & 1) << 4;
}

void OfQ50(const BlockQ50& block, float* x) {
  const float d = ToFloat(block.d);
  for (int i = 0; i < kHalf; ++i) {
    x[i] = static_cast<float>(((block.low[i] & 15) | HighBit(block.high, i)) - 16) * d;
    x[i + kHalf] = static_cast<float>(((block.low[i] >> 4) | HighBit(block.high, i + kHalf)) - 16) * d;
  }
}

void OfQ51(const BlockQ51& block, float* x) {
  const float d = ToFloat(block.d), m = ToFloat(block.m);
  for (int i = 0; i < kHalf; ++i) {
    x[i] = static_cast<float>((block.low[i] & 15) | HighBit(block.high, i)) * d + m;
    x[i + kHalf] = static_cast<float>((block.low[i] >> 4) | HighBit(block.high, i + kHalf)) * d + m;
  }
}

void OfQ8(const BlockQ8& block, float* x) {
  const float d = ToFloat(block.d);
  for (int i = 0; i < kSmallBlock; ++i) x[i] = static_cast<float>(block.q[i]) * d;
}

// Scale and minimum of group g: six bits each, the upper two of the last four groups with the first four.
struct ScaleAndMin {
  float scale, min;
};
ScaleAndMin GroupOf(const uint8_t (&scales)[12], int g) {
  if (g < 4) return {static_cast<float>(scales[g] & 63), static_cast<float>(scales[g + 4] & 63)};
  return {static_cast<float>((scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4),
          static_cast<float>((scales[g + 4] >> 4) | (scales[g] >> 6) << 4)};
}

// `high`: bit 4 of element 32 g + i is bit g of high[i]; nullptr: there is none.
void OfGroups32(f16 of_scales, f16 of_mins, const uint8_t (&scales)[12], const uint8_t* low, const uint8_t* high,
                float* x) {
  constexpr int kGroup = 32;
  const float d = ToFloat(of_scales), dmin = ToFloat(of_mins);
  for (int g = 0; g < kSuperBlock / kGroup; ++g) {
    const auto [scale, min] = GroupOf(scales, g);
    const float step = d * scale, shift = dmin * min;
    const uint8_t* const bytes = low + g / 2 * kGroup;
    for (int i = 0; i < kGroup; ++i) {
      int q = g % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4;
      if (high != nullptr) q |= (high[i] >> g & 1) << 4;
      x[g * kGroup + i] = step * static_cast<float>(q) - shift;
    }
  }
}

void OfQ4K(const BlockQ4K& block, float* x) {
  OfGroups32(block.d, block.dmin, block.scales, block.low, nullptr, x);
}
void OfQ5K(const BlockQ5K& block, float* x) {
  OfGroups32(block.d, block.dmin, block.scales, block.low, block.high, x);
}

void OfQ6K(const BlockQ6K& block, float* x) {
  const float d = ToFloat(block.d);
  constexpr int kPart = kSuperBlock / 2;  // which has 64 bytes of low bits and 32 of high ones
  for (int part = 0; part < 2; ++part) {
    const uint8_t *const low = block.low + part * kPart / 2, *const high = block.high + part * kPart / 4;
    for (int i = 0; i < kPart; ++i) {
      const int quarter = i / 32, at = i % 32;
      const int bits = quarter < 2 ? low[at + quarter * 32] & 15 : low[at + (quarter - 2) * 32] >> 4;
      const int q = (bits | (high[at] >> 2 * quarter & 3) << 4) - 32;
      const int group = part * kPart / 16 + i / 16;
      x[part * kPart + i] = d * static_cast<float>(block.scales[group]) * static_cast<float>(q);
    }
  }
}

template <class Block, int kElements, void (*kDecode)(const Block&, float*)>
constexpr BlockDecoder DecoderOf(std::string_view name, uint32_t id, int64_t scales_at, int64_t scales) {
  return {name, id, kElements, sizeof(Block), scales_at, scales, DecodeAll<Block, kElements, kDecode>};
}

constexpr BlockDecoder kDecoders[] = {
    DecoderOf<BlockQ40, kSmallBlock, OfQ40>("q4_0", 2, 0, 1),
    DecoderOf<BlockQ41, kSmallBlock, OfQ41>("q4_1", 3, 0, 2),
    DecoderOf<BlockQ50, kSmallBlock, OfQ50>("q5_0", 6, 0, 1),
    DecoderOf<BlockQ51, kSmallBlock, OfQ51>("q5_1", 7, 0, 2),
    DecoderOf<BlockQ8, kSmallBlock, OfQ8>("q8_0", 8, 0, 1),
    DecoderOf<BlockQ4K, kSuperBlock, OfQ4K>("q4_k", 12, 0, 2),
    DecoderOf<BlockQ5K, kSuperBlock, OfQ5K>("q5_k", 13, 0, 2),
    DecoderOf<BlockQ6K, kSuperBlock, OfQ6K>("q6_k", 14, offsetof(BlockQ6K, d), 1),
};

}  // namespace

bool BlockDecoder::IsFinite(const std::byte* in, int64_t n) const {
  constexpr uint16_t kExponent = 0x7C00;
  bool finite = true;
  for (const std::byte* scale = in + scales_at; n > 0; n -= elements, scale += bytes) {
    for (int64_t i = 0; i < scales; ++i) {
      uint16_t bits;
      std::memcpy(&bits, scale + 2 * i, sizeof bits);
      finite = finite && (bits & kExponent) != kExponent;
    }
  }
  return finite;
}

const BlockDecoder* FindBlockDecoder(uint32_t id) {
  const auto* const found =
      std::find_if(std::begin(kDecoders), std::end(kDecoders), [id](const BlockDecoder& d) { return d.id == id; });
  return found == std::end(kDecoders) ? nullptr : found;
}

std::string_view NameOfGgmlType(uint32_t id) {
  // ggml.h, enum ggml_type.
  static constexpr std::string_view kNames[] = {
      "f32",   "f16",    "q4_0",  "q4_1", "",     "",        "q5_0",   "q5_1",    "q8_0",  "q8_1",   "q2_k",
      "q3_k",  "q4_k",   "q5_k",  "q6_k", "q8_k", "iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq4_nl", "iq3_s",
      "iq2_s", "iq4_xs", "i8",    "i16",  "i32",  "i64",     "f64",    "iq1_m",   "bf16",  "",       "",
      "",      "tq1_0",  "tq2_0", "",     "",     "",        "mxfp4",  "nvfp4"};
  return id < std::size(kNames) ? kNames[id] : "";
}

}  // namespace temper
