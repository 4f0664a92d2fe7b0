// Element types and their conversions. bf16 and f16 are for storage: arithmetic is in f32 unless a kernel says so. u8
// is bytes, whose meaning the kernel that reads them knows.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace temper {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kF64, kU8 };

constexpr int64_t SizeOf(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
    case DType::kF64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view ToString(DType t);               // "f32", "bf16", ...: Temper's own spelling
Result<DType> ParseDType(std::string_view text);  // the inverse
std::string_view SafetensorsName(DType t);        // "F32", "BF16", ...: the spelling of the file format

// The upper half of an f32.
struct bf16 {
  uint16_t bits = 0;
};
// IEEE binary16.
struct f16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(float x) {
  return x;
}
constexpr float ToFloat(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
float ToFloat(f16 x);

// Round to nearest, ties to even; NaN stays NaN (quiet).
constexpr bf16 ToBF16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16)};
}
f16 ToF16(float x);

template <class T>
constexpr T FromFloat(float x);
template <>
constexpr float FromFloat<float>(float x) {
  return x;
}
template <>
constexpr bf16 FromFloat<bf16>(float x) {
  return ToBF16(x);
}

// Unit roundoff: half the distance from 1 to the next representable number.
constexpr double UnitRoundoff(DType t) {
  switch (t) {
    case DType::kF32:
      return 0x1.0p-24;
    case DType::kBF16:
      return 0x1.0p-8;
    case DType::kF16:
      return 0x1.0p-11;
    case DType::kF64:
      return 0x1.0p-53;
    default:
      return 0;
  }
}

// Calls f.template operator()<float>() or <bf16>(): the one place where a compute dtype becomes a type.
// REQUIRES: t is kF32 or kBF16.
template <class F>
decltype(auto) DispatchFloat(DType t, F&& f) {
  TEMPER_CHECK(t == DType::kF32 || t == DType::kBF16) << "no kernel computes in " << ToString(t);
  if (t == DType::kF32) return f.template operator()<float>();
  return f.template operator()<bf16>();
}

}  // namespace temper
