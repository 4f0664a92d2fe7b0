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
namespace {

// 2^x within 3u, relative, where x > -126.5; 0 below. REQUIRES: x <= 1, or a lane that is not kept. x - n is exact; the
// Taylor sum is short by (r ln 2)^8 / 8! / 2^r < 8e-9 = 0.13u, and Horner's rule rounds as in Exp, whose product by
// log2(e) and second factor this has not.
TEMPER_VEC Floats Exp2(Floats x) {
  x = AtLeast(-150.0f, x);
  const Floats n = RoundToInteger(x), r = x - n;
  Floats p = Set(1.52527338e-5f);
  p = Fma(p, r, Set(1.54035304e-4f));
  p = Fma(p, r, Set(1.33335581e-3f));
  p = Fma(p, r, Set(9.61812911e-3f));
  p = Fma(p, r, Set(5.55041087e-2f));
  p = Fma(p, r, Set(2.40226507e-1f));
  p = Fma(p, r, Set(6.93147181e-1f));
  p = Fma(p, r, Set(1.0f));
  const Ints power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  // Behind the product: of n = -128 the power is infinite.
  return _mm256_and_ps(p * _mm256_castsi256_ps(power), _mm256_cmp_ps(n, Set(-126.0f), _CMP_NLT_UQ));
}

// Scores are scaled by log2(e) instead: with heads of 64 elements a vector of scores costs 128 multiply-adds, forward,
// so that each instruction of its exponential counts.
template <class Math>
struct OfBase2 : Math {
  static constexpr float kExponentFactor = kLog2E;
  static TEMPER_INLINE Floats Exponential(Floats x) { return Exp2(x); }
};

}  // namespace

constexpr AttentionKernels kAttentionF32Avx2 =
    AttentionTable<OfBase2<F32Math<float>>, OfBase2<F32Math<float>>>(kTilesF32Avx2);
constexpr AttentionKernels kAttentionBF16AsF32Avx2 =
    AttentionTable<OfBase2<F32Math<bf16>>, OfBase2<F32MathOfBF16Panels>>(kTilesBF16AsF32Avx2);

}  // namespace temper
