#include "backend/cpu/vector/vec_avx2.h"

namespace temper {
namespace {

constexpr int kRows = 6;

// Zero in lanes outside of [begin, end).
TEMPER_VEC Floats KeepRange(Floats x, int64_t begin, int64_t end) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int from = begin < 0 ? 0 : begin > 8 ? 8 : static_cast<int>(begin);
  const int to = end < 0 ? 0 : end > 8 ? 8 : static_cast<int>(end);
  const Ints keep = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane),
                                        _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
  return _mm256_and_ps(_mm256_castsi256_ps(keep), x);
}

}  // namespace
}  // namespace temper

#include "backend/cpu/attention/attention_sums-inl.h"
// What a tile's products are called must be known before its bodies.
#include "backend/cpu/attention/attention_tile-inl.h"

namespace temper {

constexpr AttentionKernels kAttentionF32Avx2 = AttentionTable<F32Math<float>, F32Math<float>>(kTilesF32Avx2);
constexpr AttentionKernels kAttentionBF16AsF32Avx2 =
    AttentionTable<F32Math<bf16>, F32MathOfBF16Panels>(kTilesBF16AsF32Avx2);

}  // namespace temper
