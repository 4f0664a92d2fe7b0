#include "backend/cpu/products/gemm_peak.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"

namespace temper::gemm_peak_test {
namespace {

TEST(GemmPeak, IsMeasuredOnEveryInstructionSet) {
  for (const Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const double rate = MeasureGemmPeak(dtype, /*threads=*/3, isa);
      EXPECT_TRUE(std::isfinite(rate) && rate > 0) << ToString(isa) << ' ' << ToString(dtype) << ": " << rate;
    }
  }
}

TEST(GemmPeak, IsNoLessThanTheWholeProductsThatAreMeasuredInTurn) {
  for (const Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const ProductSpeed speed = MeasureProductSpeed(dtype, /*threads=*/2, isa, /*seconds=*/0.1);
      for (const RateOfRounds& rate : {speed.products, speed.peak}) {
        EXPECT_GT(rate.median, 0) << ToString(isa);
        EXPECT_GE(rate.best, rate.median) << ToString(isa);
      }
      EXPECT_GE(speed.peak.best, speed.products.best) << ToString(isa);
    }
  }
}

}  // namespace
}  // namespace temper::gemm_peak_test
