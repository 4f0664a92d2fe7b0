// The vector kernels behind Convert (conversion_avx2.cc). REQUIRES: the CPU has AVX2 and F16C.
#pragma once

#include <cstdint>

namespace temper::internal {

// Arguments as in Convert; the number is the count of elements.
void BF16ToF32Avx2(const uint16_t* in, uint32_t* out, int64_t n);
void F32ToBF16Avx2(const uint32_t* in, uint16_t* out, int64_t n);
void F16ToF32Avx2(const uint16_t* in, uint32_t* out, int64_t n);
void F16ToBF16Avx2(const uint16_t* in, uint16_t* out, int64_t n);

// How many trailing elements each kernel leaves to scalar code: it does only whole vectors of this many.
constexpr int64_t kConversionVector = 16;

}  // namespace temper::internal
