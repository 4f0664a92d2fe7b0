// class_report: the fast kernel against its twin, and the twin by hand.
#include <gtest/gtest.h>

#include <vector>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::class_report_test {
namespace {

OpCase CaseOf(Tensor logits, std::vector<int32_t> labels) {
  return {Op::kClassReport, {std::move(logits), Tensor::Ints(std::move(labels))}, {}};
}

TEST(ClassReport, TheFastKernelDoesAsItsTwin) {
  for (const int64_t classes : {1, 2, 7, 40}) {
    std::vector<int32_t> labels;
    for (int64_t t = 0; t < 60; ++t) labels.push_back(t % 3 == 0 ? -1 : static_cast<int32_t>(t % classes));
    ExpectConforms(CaseOf(Tensor::Random({DType::kF32, {60, classes}}, 5, 1.0), labels),
                   [](int, int64_t) { return 0.0; });
  }
}

TEST(ClassReport, NamesTheFirstOfTheGreatestLogits) {
  const OpCase report =
      CaseOf(Tensor::Of({DType::kF32, {4, 3}}, {0, 2, 1, 5, 5, 1, 9, 0, 0, -3, -2, -1}), {1, 1, -1, 2});
  const std::vector<Tensor> out = RunOn(ReferenceKernels(), report, 1);
  const double prediction[] = {1, 0, -1, 2}, correct[] = {1, 0, 0, 1};
  for (int64_t t = 0; t < 4; ++t) {
    EXPECT_EQ(out[0][t], prediction[t]) << t;
    EXPECT_EQ(out[1][t], correct[t]) << t;
  }
}

}  // namespace
}  // namespace temper::class_report_test
