// Units as types: a byte count, a number of floating-point operations and a duration cannot be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace temper {

struct Bytes {
  int64_t v = 0;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.v + b.v}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.v - b.v}; }
  friend constexpr Bytes operator*(Bytes a, int64_t n) { return {a.v * n}; }
  friend constexpr Bytes operator/(Bytes a, int64_t n) { return {a.v / n}; }
  constexpr Bytes& operator+=(Bytes b) {
    v += b.v;
    return *this;
  }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
};

struct Flops {
  double v = 0;
  friend constexpr Flops operator+(Flops a, Flops b) { return {a.v + b.v}; }
  constexpr Flops& operator+=(Flops b) {
    v += b.v;
    return *this;
  }
  friend constexpr auto operator<=>(Flops, Flops) = default;
};

struct Seconds {
  double v = 0;
  friend constexpr Seconds operator+(Seconds a, Seconds b) { return {a.v + b.v}; }
  constexpr Seconds& operator+=(Seconds b) {
    v += b.v;
    return *this;
  }
  friend constexpr auto operator<=>(Seconds, Seconds) = default;
};

constexpr Bytes KiB(int64_t n) {
  return {n << 10};
}
constexpr Bytes MiB(int64_t n) {
  return {n << 20};
}
constexpr Bytes GiB(int64_t n) {
  return {n << 30};
}

// The smallest multiple of `alignment` that is at least `b`. REQUIRES: alignment > 0.
constexpr Bytes AlignUp(Bytes b, int64_t alignment) {
  return {(b.v + alignment - 1) / alignment * alignment};
}

std::string ToString(Bytes b);    // "1.50 GiB", "12 B"
std::string ToString(Flops f);    // "1.38 TFLOP"
std::string ToString(Seconds s);  // "2.1 s", "3 m 20 s", "1 h 02 m"

}  // namespace temper
