#include "format/conversion.h"

#include <cpuid.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "format/conversion_kernels.h"

namespace temper {
namespace {

// f64 -> f32 rounded to odd: the nearest f32 towards zero, with its last bit set if anything was cut off. Rounding that
// to bf16 or f16 (at least two bits shorter) gives what rounding the f64 once would have given.
float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(x)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <class To, class From>
To ConvertOne(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, double>) {
    return ToFloat(x);
  } else {
    float f;
    if constexpr (!std::is_same_v<From, double>) {
      f = ToFloat(x);
    } else if constexpr (std::is_same_v<To, float>) {
      f = static_cast<float>(x);
    } else {
      f = RoundToOdd(x);
    }
    if constexpr (std::is_same_v<To, float>) return f;
    if constexpr (std::is_same_v<To, bf16>) return ToBF16(f);
    if constexpr (std::is_same_v<To, f16>) return ToF16(f);
  }
}

template <class F>
void DispatchFloating(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(bf16{});
    case DType::kF16:
      return f(f16{});
    case DType::kF64:
      return f(double{});
    default:
      TEMPER_CHECK(false) << "no conversion for " << ToString(t);
  }
}

// AVX2 (with the operating system's consent) and F16C, which clang 14's __builtin_cpu_supports does not know.
bool HasVectorInstructions() {
  unsigned a, b, c = 0, d;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Elements converted by a vector kernel; the rest is left to the scalar code.
int64_t ConvertVectors(DType from, const std::byte* in, DType to, std::byte* out, int64_t n) {
  static const bool usable = HasVectorInstructions();
  if (!usable) return 0;
  const auto* in16 = reinterpret_cast<const uint16_t*>(in);
  if (from == DType::kBF16 && to == DType::kF32) {
    internal::BF16ToF32Avx2(in16, reinterpret_cast<uint32_t*>(out), n);
  } else if (from == DType::kF32 && to == DType::kBF16) {
    internal::F32ToBF16Avx2(reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint16_t*>(out), n);
  } else if (from == DType::kF16 && to == DType::kF32) {
    internal::F16ToF32Avx2(in16, reinterpret_cast<uint32_t*>(out), n);
  } else if (from == DType::kF16 && to == DType::kBF16) {
    internal::F16ToBF16Avx2(in16, reinterpret_cast<uint16_t*>(out), n);
  } else {
    return 0;
  }
  return n / internal::kConversionVector * internal::kConversionVector;
}

}  // namespace

bool IsFloating(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16 || t == DType::kF64;
}

void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t elements) {
  TEMPER_CHECK(IsFloating(from) && IsFloating(to)) << "no conversion from " << ToString(from) << " to " << ToString(to);
  if (elements == 0) return;
  if (from == to) {
    std::memcpy(out, in, static_cast<size_t>(elements * SizeOf(from)));
    return;
  }
  const int64_t done = ConvertVectors(from, in, to, out, elements);
  ConvertReference(from, in + done * SizeOf(from), to, out + done * SizeOf(to), elements - done);
}

void ConvertReference(DType from, const std::byte* in, DType to, std::byte* out, int64_t elements) {
  DispatchFloating(from, [&]<class From>(From) {
    DispatchFloating(to, [&]<class To>(To) {
      const auto* x = reinterpret_cast<const From*>(in);
      auto* y = reinterpret_cast<To*>(out);
      for (int64_t i = 0; i < elements; ++i) y[i] = ConvertOne<To>(x[i]);
    });
  });
}

}  // namespace temper
