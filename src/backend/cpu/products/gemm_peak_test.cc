#include "backend/cpu/products/gemm_peak.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"

namespace temper::gemm_peak_test {
namespace {

TEST(GemmPeak, IsMeasuredOnEveryInstructionSet) {
  for (const Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      // Far below what any of these reaches, even on a busy machine.
      EXPECT_GT(MeasureGemmPeak(dtype, /*threads=*/3, isa), 1e9) << ToString(isa) << ' ' << ToString(dtype);
    }
  }
}

}  // namespace
}  // namespace temper::gemm_peak_test
