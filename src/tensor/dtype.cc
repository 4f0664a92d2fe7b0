#include "tensor/dtype.h"

#include <string>

namespace temper {

std::string_view ToString(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF64:
      return "f64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

Result<DType> ParseDType(std::string_view text) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kF64, DType::kU8}) {
    if (ToString(t) == text) return t;
  }
  return InvalidArgument("unknown dtype '" + std::string(text) + "': known are f32, bf16, f16, i32, i64, f64, u8");
}

std::string_view SafetensorsName(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kF64:
      return "F64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

float ToFloat(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1F;
  const uint32_t mantissa = x.bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;  // zero and subnormals: exact in f32
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

f16 ToF16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const uint32_t magnitude = u & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return {static_cast<uint16_t>(sign | 0x7E00)};
  // 65520 = 65504 + half of its last place: rounds up to infinity from here on.
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) return {static_cast<uint16_t>(sign | 0x7C00)};
  if (magnitude < std::bit_cast<uint32_t>(0x1.0p-14f)) {
    // Subnormal: adding 0.5 puts the last place of binary16 subnormals (2^-24) at f32's last place, rounding to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)))};
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

}  // namespace temper
