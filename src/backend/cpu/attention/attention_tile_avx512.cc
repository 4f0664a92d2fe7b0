#include "backend/cpu/attention/attention_lanes_avx512-inl.h"

namespace temper {
namespace {

constexpr int kRows = 12;

}  // namespace
}  // namespace temper

#include "backend/cpu/attention/attention_sums-inl.h"
// What a tile's products are called must be known before its bodies.
#include "backend/cpu/attention/attention_pairs-inl.h"

namespace temper {

constexpr AttentionKernels kAttentionF32Avx512 = AttentionTable<F32Math<float>, F32Math<float>>(kTilesF32Avx512);
constexpr AttentionKernels kAttentionBF16AsF32Avx512 =
    AttentionTable<F32Math<bf16>, F32MathOfBF16Panels>(kTilesBF16AsF32Avx512);
constexpr AttentionKernels kAttentionBF16Avx512 = AttentionTable<PairMath, PairMath>(kTilesBF16Avx512);

}  // namespace temper
