#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/attention/softmax_row-inl.h"

namespace temper {
namespace {

// With the processor's own rounding to bf16, which takes subnormal numbers for zero.
struct NativeBF16Row : BF16Row {
  static TEMPER_INLINE void Write(bf16* p, Floats x, Full) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
  }
  static TEMPER_INLINE void Write(bf16* p, Floats x, Part part) {
    _mm256_mask_storeu_epi16(p, part.mask, (__m256i)_mm512_cvtneps_pbh(x));
  }
};

}  // namespace

constexpr SoftmaxRowKernels kSoftmaxRowAvx512 = kTable;
constexpr SoftmaxRowKernels kSoftmaxRowAvx512Bf16 = {kRowKernels<F32Row>, kRowKernels<NativeBF16Row>};

}  // namespace temper
