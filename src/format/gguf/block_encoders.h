// The encoders behind BlockFormat: scalar twins (block_reference.cc), and those that compute the groups of a block side
// by side (block_avx2.cc). Both have the arithmetic of ggml in f32, in its order, so that bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace temper::internal {

// The integer next to x, ties to even. REQUIRES: |x| < 2^22.
inline int32_t NearestInt(float x) {
  const float shifted = x + 12582912.f;  // 1.5 2^23: the integer is in the low bits
  int32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  return (bits & 0x007fffff) - 0x00400000;
}

void EncodeQ8(const float* x, std::byte* out, int64_t n);
void EncodeQ50(const float* x, std::byte* out, int64_t n);
void EncodeQ51(const float* x, std::byte* out, int64_t n);
void EncodeQ4K(const float* x, std::byte* out, int64_t n);
void EncodeQ5K(const float* x, std::byte* out, int64_t n);
void EncodeQ6K(const float* x, std::byte* out, int64_t n);

// REQUIRES: the processor has AVX2.
void EncodeQ8Avx2(const float* x, std::byte* out, int64_t n);
void EncodeQ4KAvx2(const float* x, std::byte* out, int64_t n);
void EncodeQ5KAvx2(const float* x, std::byte* out, int64_t n);
void EncodeQ6KAvx2(const float* x, std::byte* out, int64_t n);

// What fast encoders share with their twins: from the groups' scales to the block.
struct Groups32 {
  float scale[8], min[8];  // x is about scale q - min
  uint8_t q[256];          // as the search for scales found them; kept where a group's scale rounds to 0
};
void FinishQ4K(const float* x, Groups32& groups, std::byte* out);
void FinishQ5K(const float* x, Groups32& groups, std::byte* out);
struct Groups16 {
  float scale[16];
  int8_t q[256];
};
void FinishQ6K(const float* x, Groups16& groups, std::byte* out);

}  // namespace temper::internal
