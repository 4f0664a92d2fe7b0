// Floating-point numbers as GPUs compute them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace temper::ptx {

// The only NaN that f32 arithmetic makes.
inline float Canonical(float x) {
  return x != x ? std::bit_cast<float>(0x7FFFFFFFu) : x;
}
inline double Canonical(double x) {
  return x;
}

// Subnormal numbers become zeros of their sign (.ftz).
inline float Flushed(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
inline double Flushed(double x) {
  return x;
}

inline float Saturated(float x) {
  return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;  // NaN: 0
}

// To f32 by truncation: GPUs' matrix units have been observed to round sums like this.
inline float CutOff(double x) {
  const auto d = static_cast<float>(x);
  return std::fabs(static_cast<double>(d)) > std::fabs(x) && !std::isinf(x)
             ? std::bit_cast<float>(std::bit_cast<uint32_t>(d) - 1)
             : Canonical(d);
}

inline float FromBFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Rounded to nearest, ties to even; NaN is 0x7FFF.
inline uint16_t ToBFloat(float x) {
  if (x != x) return 0x7FFF;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t kept = bits >> 16, rest = bits & 0xFFFF;
  return static_cast<uint16_t>(kept + (rest > 0x8000 || (rest == 0x8000 && (kept & 1) != 0)));
}

}  // namespace temper::ptx
