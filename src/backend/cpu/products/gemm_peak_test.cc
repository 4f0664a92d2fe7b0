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

TEST(GemmPeak, IsNoLessThanTheWholeProductsThatAreMeasuredInTurn) {
  for (const Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const ProductSpeed speed = MeasureProductSpeed(dtype, /*threads=*/2, isa, /*seconds=*/0.1);
      for (const RateOfRounds& rate : {speed.products, speed.peak}) {
        EXPECT_GT(rate.median, 1e8) << ToString(isa);
        EXPECT_GE(rate.best, rate.median) << ToString(isa);
      }
      EXPECT_GE(speed.peak.best, speed.products.best) << ToString(isa);
    }
  }
}

}  // namespace
}  // namespace temper::gemm_peak_test
