#include "comm/local/sum.h"

#include "base/check.h"
#include "comm/local/sum-inl.h"

namespace temper {

constexpr SumKernels kSumKernelsScalar = kTable;

const SumKernels& FastestSumKernels() {
  static const SumKernels& fastest = []() -> const SumKernels& {
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return kSumKernelsScalar;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bf16");
    return avx512 ? kSumKernelsAvx512 : kSumKernelsAvx2;
  }();
  return fastest;
}

void Sum(DType dtype, const std::byte* const* terms, int num_terms, const std::byte* acc, std::byte* out, int64_t n) {
  const SumKernels& kernels = FastestSumKernels();
  switch (dtype) {
    case DType::kF32:
      return kernels.f32(reinterpret_cast<const float* const*>(terms), num_terms, reinterpret_cast<const float*>(acc),
                         reinterpret_cast<float*>(out), n);
    case DType::kBF16:
      return kernels.bf16(reinterpret_cast<const uint16_t* const*>(terms), num_terms,
                          reinterpret_cast<const uint16_t*>(acc), reinterpret_cast<uint16_t*>(out), n);
    case DType::kF64:
      return kernels.f64(reinterpret_cast<const double* const*>(terms), num_terms, reinterpret_cast<const double*>(acc),
                         reinterpret_cast<double*>(out), n);
    default:
      TEMPER_CHECK(false) << "no sum of " << ToString(dtype);
  }
}

}  // namespace temper
