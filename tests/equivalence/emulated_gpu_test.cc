// Whole training steps on the GPU backend's kernels, run by the emulator on a device whose memory the host cannot
// touch: the losses of the CPU.
#ifdef TEMPER_GPU_EMULATED
#include <gtest/gtest.h>

#include "../device_run.h"
#include "backend/gpu/emulator/emulated_kernels.h"

namespace temper {
namespace {

using tiny::Batch;
using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

// Three steps. In f32 both sum a loss's some 10^2 terms in orders of their own, as ranks of a mesh do: the same
// tolerance (mesh_test.cc). bf16 rounds activations to 2^-8 where sums that differ in the last place may fall either
// way.
void ExpectLossesOfTheCpu(const RunSpec& spec, double tolerance) {
  TinyRun host(spec);
  const auto kernels = MakeEmulatedGpuKernels({.warp_size = 32, .order = 11});
  DeviceRun device(spec, host, *kernels);
  for (int step = 0; step < 3; ++step) {
    Batch batch = host.MakeBatch(static_cast<uint64_t>(step));
    host.Step(batch);
    const Status status = device.Step(batch);
    ASSERT_TRUE(status.ok()) << status.message();
    double sum = 0;
    for (float loss : device.losses()) sum += loss;
    EXPECT_NEAR(sum, host.loss_sum(), tolerance * host.loss_sum()) << "step " << step;
  }
}

TEST(EmulatedGpu, TrainsALlamaAsTheCpuDoes) {
  ExpectLossesOfTheCpu({.row = 16, .micro_batches = 2}, 1e-5);
}

TEST(EmulatedGpu, TrainsAnOptAsTheCpuDoes) {
  ExpectLossesOfTheCpu({.config = tiny::OptConfigText(true), .row = 16, .micro_batches = 2}, 1e-5);
}

TEST(EmulatedGpu, TrainsLoraWithDropoutInBf16AsTheCpuDoes) {
  ExpectLossesOfTheCpu({.method = Method::kLoraWithHead,
                        .dtype = DType::kBF16,
                        .dropout = 0.1,
                        .row = 16,
                        .micro_batches = 2,
                        .recompute = Recompute::kBlock},
                       5e-3);
}

}  // namespace
}  // namespace temper
#endif
