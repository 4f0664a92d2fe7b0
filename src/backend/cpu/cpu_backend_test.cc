#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/op.h"

namespace temper::cpu_backend_test {
namespace {

TEST(CpuBackend, OnlySingleNumbersAreLeftToTheScalarTwin) {
  const std::set<Op> fast = {
#define TEMPER_CPU_KERNEL(op, maker) Op::k##op,
#define TEMPER_CPU_EXCHANGING_KERNEL(op, maker) Op::k##op,
#include "backend/cpu/kernel_list.inc"
  };
  std::set<Op> left;
  for (int i = 0; i < NumOps(); ++i) {
    const Op op = static_cast<Op>(i);
    if (RunnerOf(op) == OpRunner::kKernel && fast.count(op) == 0) left.insert(op);
    if (RunnerOf(op) != OpRunner::kKernel) {
      EXPECT_EQ(fast.count(op), 0u) << ToString(op);
    }
  }
  EXPECT_EQ(left, (std::set<Op>{Op::kSumScalars, Op::kClip}));
}

TEST(CpuBackend, RefusesWhatNoKernelCarriesOutByName) {
  for (const Op op : {Op::kFetch, Op::kAllGather, Op::kSend}) {
    const auto kernel = ReferenceKernels().Make({.op = op});
    ASSERT_FALSE(kernel.ok());
    EXPECT_NE(kernel.status().message().find(ToString(op)), std::string::npos) << kernel.status().message();
  }
}

}  // namespace
}  // namespace temper::cpu_backend_test
