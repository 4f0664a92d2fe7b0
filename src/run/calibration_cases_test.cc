#include "run/calibration_cases.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace temper::calibration_cases_test {
namespace {

// One rate per op, class and dtype; for ops that only move data, from ascending sizes (FitBandwidth).
TEST(CalibrationCases, GiveEachRateOnceFromOperandsOfItsClass) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::set<std::pair<Op, OpClass>> rates;
    for (const RateCases& rate : CalibrationCases(dtype)) {
      SCOPED_TRACE(ToString(rate.op));
      EXPECT_TRUE(rates.emplace(rate.op, rate.op_class).second);
      EXPECT_EQ(rate.dtype, dtype);
      EXPECT_EQ(rate.computes, rate.op_class != OpClass::kMemory);
      EXPECT_GE(rate.cases.size(), 3u);
      Bytes before;
      for (const TimedCase& c : rate.cases) {
        EXPECT_EQ(c.op, rate.op);
        EXPECT_EQ(ClassOf(c.op, c.inputs), rate.op_class);
        const Cost cost = CostOf(c);
        if (!rate.computes) {
          EXPECT_GT(cost.read + cost.written, before);
        }
        before = cost.read + cost.written;
      }
    }
    for (const Op op : {Op::kLinear, Op::kLinearDx, Op::kLinearDw}) {
      EXPECT_EQ(rates.count({op, OpClass::kProduct}), 1u) << ToString(op);
      EXPECT_EQ(rates.count({op, OpClass::kNarrow}), 1u) << ToString(op);
    }
    EXPECT_EQ(rates.count({Op::kAdamw, OpClass::kMemory}), dtype == DType::kF32 ? 1u : 0u) << "its states are f32";
  }
}

}  // namespace
}  // namespace temper::calibration_cases_test
