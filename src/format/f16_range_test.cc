#include "format/f16_range.h"

#include <gtest/gtest.h>

#include <array>

#include "format/conversion.h"

namespace temper::f16_range_test {
namespace {

void NoteFloats(F16Range& range, const std::string& name, const std::array<float, 4>& x) {
  std::array<uint16_t, 4> written{};
  Convert(DType::kF32, std::as_bytes(std::span(x)).data(), DType::kF16,
          std::as_writable_bytes(std::span(written)).data(), 4);
  range.Note(name, DType::kF16, std::as_bytes(std::span(written)));
}

TEST(F16Range, CountsNumbersThatFloat16CannotHold) {
  F16Range range;
  NoteFloats(range, "a", {65504, -65519, 0, 6e-8F});
  EXPECT_EQ(range.Warning("f"), "");
  NoteFloats(range, "b", {65520, 1, -1e6F, 0});
  NoteFloats(range, "c", {1e30F, 1, 2, 3});
  const std::string warning = range.Warning("f");
  EXPECT_TRUE(warning.starts_with("f: 3 numbers are infinite, the first of them in 'b'")) << warning;
  // bf16 has other bits.
  F16Range other;
  const std::array<uint16_t, 1> bits = {0x7c00};
  other.Note("a", DType::kBF16, std::as_bytes(std::span(bits)));
  EXPECT_EQ(other.Warning("f"), "");
}

}  // namespace
}  // namespace temper::f16_range_test
