// The loops of sum.h, compiled once per instruction set. Everything is in an anonymous namespace, and no inline
// function of a shared header is called: the linker must not merge code of different instruction sets.
#pragma once

#include "comm/local/sum.h"

namespace temper {
namespace {

// Sums are kept in a block that stays in the L1 cache while the terms stream by.
constexpr int64_t kBlock = 1024;

inline float Widen(float x) {
  return x;
}
inline double Widen(double x) {
  return x;
}
inline float Widen(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

template <class T, class Wide>
inline T Narrow(Wide x) {
  return x;
}
// As ToBF16 of tensor/dtype.h: to nearest, ties to even, NaN stays NaN.
template <>
inline uint16_t Narrow<uint16_t, float>(float x) {
  const auto u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16, quiet = (u >> 16) | 0x40;
  return static_cast<uint16_t>((u & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

template <class T, class Wide, class Out>
void SumBlocks(const T* const* terms, int num_terms, const Out* acc, Out* out, int64_t n) {
  alignas(64) Wide sum[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    const T* const first = terms[0] + begin;
    if (num_terms == 1) {
      for (int64_t i = 0; i < count; ++i) sum[i] = Widen(first[i]);
    } else {
      const T* const second = terms[1] + begin;
      for (int64_t i = 0; i < count; ++i) sum[i] = Widen(first[i]) + Widen(second[i]);
    }
    for (int k = 2; k < num_terms; ++k) {
      const T* const term = terms[k] + begin;
      for (int64_t i = 0; i < count; ++i) sum[i] += Widen(term[i]);
    }
    if (acc != nullptr) {
      for (int64_t i = 0; i < count; ++i) sum[i] += Widen(acc[begin + i]);
    }
    Out* const to = out + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = Narrow<Out, Wide>(sum[i]);
  }
}

constexpr SumKernels kTable = {.f32 = SumBlocks<float, float, float>,
                               .bf16 = SumBlocks<uint16_t, float, uint16_t>,
                               .f64 = SumBlocks<double, double, double>,
                               .bf16_to_f32 = SumBlocks<uint16_t, float, float>,
                               .f32_to_bf16 = SumBlocks<float, float, uint16_t>};

}  // namespace
}  // namespace temper
