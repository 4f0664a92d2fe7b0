// attention_step and its backward, against their scalar twins: the rings of the CPU's tests.
#include <gtest/gtest.h>

#include "backend/cpu/attention/attention_step_scenes.h"
#include "backend/gpu/gpus_under_test.h"
#include "graph/named_ops.h"

namespace temper::attention_step_test {
namespace {

// Heads above 256 have no kernel on GPUs. Simulators take their time: what is long in order to fill the CPU's blocks is
// left to the CPU, and most of what is slow: matrix units on the emulator, and f32 from PTX.
bool IsLeftOut(const StepScene& s) {
  if (s.shape.E > 256) return true;
#if defined(TEMPER_GPU_EMULATED)
  constexpr int64_t kMostInBf16 = 1'300'000, kMostInF32 = 6'500'000;
#elif defined(TEMPER_PTX_TESTS)
  constexpr int64_t kMostInBf16 = 6'500'000, kMostInF32 = 1'300'000;
#else
  constexpr int64_t kMostInBf16 = INT64_MAX, kMostInF32 = INT64_MAX;
#endif
  const int64_t work = s.shape.tokens * s.shape.tokens * s.q.type().shape[1];
  return work > (s.q.type().dtype == DType::kBF16 ? kMostInBf16 : kMostInF32);
}

void CheckForward(DType dtype) {
  const double u32 = UnitRoundoff(DType::kF32);
  ForEachScene(dtype, [&](const StepScene& s, const std::string& name) {
    if (IsLeftOut(s)) return;
    const TestTensor values = Absolute(s.v);
    TestTensors inputs = Copies({&s.q, &s.k, &s.v, &s.document_start});
    TestTensors absolute = Copies({&s.q, &s.k, &values, &s.document_start});
    for (TestTensor& t : Before(s)) {
      absolute.push_back(absolute.size() == 4 ? Absolute(t) : t.Copy());
      inputs.push_back(std::move(t));
    }
    const TwinRun run{Op::kAttentionStep, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const TestTensors magnitude = RunReference({Op::kAttentionStep, s.attributes, &absolute});  // sums of p |v|
    double lse = 0;
    for (int64_t i = 0; inputs.size() > 4 && i < s.shape.tokens * s.shape.heads; ++i) {
      lse = std::max(lse, std::fabs(inputs[5].Get(i)));
    }
    const double p_error = ProbabilityError(s.shape, s.q, s.k) + 2 * u32 * lse;
    // Before matrix units weight the values.
    const double p_rounding = s.q.type().dtype == DType::kBF16 ? 1.01 * UnitRoundoff(DType::kBF16) : 0;
    const auto check = [&](const TestTensors& got, const std::string& what) {
      ExpectNear(
          got[0], want[0], 4 * u32,
          [&](int64_t i) { return 1.02 * (2 * p_error + p_rounding + 1e-6) * magnitude[0].Get(i) + 1e-37; },
          what + " o");
      ExpectNear(
          got[1], want[1], 4 * u32, [&](int64_t) { return p_error; }, what + " lse");
    };
    if (inputs.size() == 4) return OnGpus(run, name, check);
    OnGpus({Op::kAttentionStep, s.attributes, &inputs, {{0, 4}, {1, 5}}}, name + " in place", check);
  });
}

TEST(GpuAttentionStep, MatchesTheScalarTwinInBf16) {
  CheckForward(DType::kBF16);
}
TEST(GpuAttentionStep, MatchesTheScalarTwinInF32) {
  CheckForward(DType::kF32);
}

void CheckBackward(DType dtype) {
  ForEachScene(dtype, [&](const StepScene& s, const std::string& name) {
    if (IsLeftOut(s)) return;
    TestTensors forward = Copies({&s.q, &s.k, &s.v, &s.document_start});
    for (TestTensor& t : Before(s)) forward.push_back(std::move(t));
    const TestTensors made = RunReference({Op::kAttentionStep, s.attributes, &forward});
    TestTensors inputs;
    inputs.push_back(RandomTensor(s.q.type(), 6));
    for (const TestTensor* t : {&s.q, &s.k, &s.v}) inputs.push_back(t->Copy());
    inputs.emplace_back(s.q.type());
    for (int64_t i = 0; i < s.q.type().shape.elements(); ++i) inputs.back().Set(i, made[0].Get(i));
    inputs.push_back(made[1].Copy());
    inputs.push_back(s.document_start.Copy());
    if (s.attributes.Flag("acc")) inputs.push_back(RandomTensor({DType::kF32, s.q.type().shape}, 7));
    const TwinRun run{Op::kAttentionStepBackward, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const BackwardBounds bounds = BoundsOf(s.shape, inputs, [&](int64_t t) { return s.Seen(t); });
    const std::vector<double>* bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v};
    const double u32 = UnitRoundoff(DType::kF32);
    OnGpus(run, name, [&](const TestTensors& got, const std::string& what) {
      for (size_t o = 0; o < 3; ++o) {
        ExpectNear(
            got[o], want[o], 2.02 * u32,
            [&](int64_t i) {
              const double before = o == 0 && inputs.size() > 7 ? std::fabs(inputs[7].Get(i)) : 0;
              return 1.02 * (*bound[o])[static_cast<size_t>(i)] + u32 * before + 1e-30;
            },
            what + " output " + std::to_string(o));
      }
    });
  });
}

TEST(GpuAttentionStepBackward, MatchesTheScalarTwinInBf16) {
  CheckBackward(DType::kBF16);
}
TEST(GpuAttentionStepBackward, MatchesTheScalarTwinInF32) {
  CheckBackward(DType::kF32);
}

}  // namespace
}  // namespace temper::attention_step_test
