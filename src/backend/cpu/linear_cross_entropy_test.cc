// linear_cross_entropy against its scalar twin.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/loss_twin.h"

namespace temper {
namespace {

void CheckLoss(const LossCase& c, DType dtype) {
  const LossRun run(c, dtype);
  const Attributes& a = run.attributes;
  const TestTensors& inputs = run.inputs;
  const TestTensors want = RunReference({Op::kLinearCrossEntropy, a, &inputs});
  for (Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    const std::string what =
        std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa));
    const TestTensors one = RunFast({Op::kLinearCrossEntropy, a, &inputs}, isa, 1);
    ASSERT_EQ(one.size(), want.size()) << what;
    for (size_t o = 0; o < want.size(); ++o) {
      ExpectNear(
          one[o], want[o], 2.02 * UnitRoundoff(want[o].type().dtype), [&](int64_t i) { return run.Bound(o, i); },
          what + " output " + std::to_string(o));
    }
    for (int threads : {1, 2, 3}) {
      const TestTensors again = RunFast({Op::kLinearCrossEntropy, a, &inputs, run.in_place}, isa, threads);
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_TRUE(again[o].SameBits(one[o])) << what << " output " << o << " threads " << threads;
      }
    }
  }
}

TEST(LinearCrossEntropy, MatchesTheScalarTwinInF32) {
  for (const LossCase& c : kLossCases) CheckLoss(c, DType::kF32);
}
TEST(LinearCrossEntropy, MatchesTheScalarTwinInBF16) {
  for (const LossCase& c : kLossCases) CheckLoss(c, DType::kBF16);
}

TEST(LinearCrossEntropy, RefusesATargetBeyondTheVocabulary) {
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kF32, {2, 8}}, 1));
  inputs.push_back(RandomTensor({DType::kF32, {5, 8}}, 2));
  inputs.emplace_back(TensorType{DType::kI32, {2}});
  inputs[2].Set(0, 4);
  inputs[2].Set(1, 5);
  KernelSpec spec{.op = Op::kLinearCrossEntropy, .threads = 1};
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, {});
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, {}, 1);
  const auto table = MakeCpuKernels({.threads = 1});
  auto kernel = table->Make(spec);
  ASSERT_TRUE(kernel.ok());
  TestTensor loss(spec.outputs[0]), workspace({DType::kF32, {spec.workspace.v / 4}});
  std::vector<std::byte*> in = {inputs[0].data(), inputs[1].data(), inputs[2].data()}, out = {loss.data()};
  EXPECT_EQ((*kernel)->Run({in.data(), out.data(), workspace.data()}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace temper
