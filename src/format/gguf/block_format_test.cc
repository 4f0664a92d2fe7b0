// Encoders against ggml's bits (hashes by tests/parity/gguf/make_block_goldens.py) and against their scalar twins.
#include "format/gguf/block_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string_view>
#include <vector>

namespace temper::block_format_test {
namespace {

constexpr BlockType kQuantised[] = {BlockType::kQ8_0, BlockType::kQ5_0, BlockType::kQ5_1,
                                    BlockType::kQ4K,  BlockType::kQ5K,  BlockType::kQ6K};

uint64_t Fnv(std::span<const std::byte> data) {
  uint64_t h = 0xCBF29CE484222325;
  for (const std::byte b : data) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001B3;
  return h;
}

// As the script's: floats of several sizes by exact steps, some blocks mostly zeros.
std::vector<float> Numbers(uint32_t state) {
  std::vector<float> x(64 * 256);
  for (size_t i = 0; i < x.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const int block = static_cast<int>(i / 256);
    const float value = static_cast<float>(static_cast<int>(state >> 9) - (1 << 22)) * 0x1p-22f;
    x[i] = block % 7 == 3 && i % 3 != 0 ? 0 : value * std::ldexp(1.f, block % 16 - 12);
  }
  return x;
}

std::vector<std::byte> Encoded(void (*encode)(const float*, std::byte*, int64_t), const BlockFormat& format,
                               const std::vector<float>& x) {
  std::vector<std::byte> out(static_cast<size_t>(format.BytesOf(std::ssize(x)).v));
  encode(x.data(), out.data(), std::ssize(x));
  return out;
}

TEST(BlockFormat, BlocksHaveTheBitsOfGgml) {
  const std::map<std::string_view, uint64_t> ggml = {
      {"q8_0", 0xcbd5951e1c24c1f1}, {"q5_0", 0x0589cf41582ca9df}, {"q5_1", 0x0b26af05e8035c8c},
      {"q4_k", 0x508c3a36b7ea0e91}, {"q5_k", 0x8b67e45258ade34a}, {"q6_k", 0x3fbb93c9b325f5cb},
  };
  const std::vector<float> x = Numbers(1);
  for (const BlockType type : kQuantised) {
    const BlockFormat& format = FormatOf(type);
    EXPECT_EQ(Fnv(Encoded(format.encode, format, x)), ggml.at(format.name)) << format.name;
    EXPECT_EQ(Fnv(Encoded(format.reference, format, x)), ggml.at(format.name)) << format.name << ", the twin";
  }
}

TEST(BlockFormat, FastEncodersHaveTheBitsOfTheirTwins) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const std::vector<float (*)(float, size_t)> shapes = {
      [](float x, size_t) { return x; },
      [](float x, size_t) { return x * 1e-3f; },
      [](float x, size_t) { return x * x * x * x * x; },
      [](float x, size_t) { return std::fabs(x); },
      [](float x, size_t) { return -std::fabs(x); },
      [](float, size_t) { return 0.f; },
      [](float x, size_t) { return std::round(x * 4) / 4; },
      [](float x, size_t i) { return x * std::ldexp(1.f, -static_cast<int>(i / 16 % 60)); },
      [](float x, size_t) { return x > 1 ? x : 0.f; },
      [](float, size_t i) { return static_cast<float>(i / 32 % 5) - 2; },
  };
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    std::vector<float> x(48 * 256);
    for (size_t i = 0; i < x.size(); ++i) x[i] = shapes[shape](normal(random), i);
    for (const BlockType type : kQuantised) {
      const BlockFormat& format = FormatOf(type);
      EXPECT_EQ(Encoded(format.encode, format, x), Encoded(format.reference, format, x)) << format.name << " " << shape;
    }
  }
}

TEST(BlockFormat, NumbersWithoutScalesAreRoundedOnce) {
  const std::vector<float> x = {1, -0.1f, 65504, 1e-8f};
  for (const BlockType type : {BlockType::kF32, BlockType::kF16, BlockType::kBF16}) {
    const BlockFormat& format = FormatOf(type);
    EXPECT_EQ(Encoded(format.encode, format, x), Encoded(format.reference, format, x)) << format.name;
    EXPECT_FALSE(format.quantised());
  }
  EXPECT_EQ(FormatOf(BlockType::kQ4K).BytesOf(512).v, 288);
}

}  // namespace
}  // namespace temper::block_format_test
