// Whole training steps with the GPU backend's kernels have the losses of the CPU. Run on a GPU if the build supports
// one, else by the emulator on a device whose memory the host cannot access.
#include <gtest/gtest.h>

#include "../apart_device.h"
#include "../device_run.h"
#include "backend/gpu/attention/packed_attention.h"
#include "backend/gpu/gpu_device.h"
#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/attention/cudnn_under_test.h"
#include "backend/gpu/emulator/emulated_kernels.h"
#endif

namespace temper::gpu_test {
namespace {

using tiny::Batch;
using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

// Three steps. In f32 both sum a loss's roughly 10^2 terms in different orders, like ranks of a mesh: the same
// tolerance (mesh_test.cc). bf16 rounds activations to 2^-8, and sums that differ in the last place may round either
// way. `packed`: a library of attention, for the emulator.
void ExpectLossesOfTheCpu(RunSpec spec, double tolerance, [[maybe_unused]] gpu::PackedAttention* packed = nullptr) {
  spec.joins_adapters = false;
#ifdef TEMPER_GPU_EMULATED
  const auto kernels = MakeEmulatedGpuKernels({.order = 11}, nullptr, packed);
  ApartDevice gpu(*kernels);
#else
  const auto opened = OpenGpu(0);
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  Device& gpu = **opened;
#endif
  TinyRun host(spec);
  DeviceRun device(spec, host, gpu);
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

TEST(Gpu, TrainsALlamaLikeTheCpu) {
  ExpectLossesOfTheCpu({.row = 16, .micro_batches = 2}, 1e-5);
}

TEST(Gpu, TrainsAnOptLikeTheCpu) {
  ExpectLossesOfTheCpu({.config = tiny::OptConfigText(true), .row = 16, .micro_batches = 2}, 1e-5);
}

TEST(Gpu, TrainsLoraWithDropoutInBf16LikeTheCpu) {
  ExpectLossesOfTheCpu({.method = Method::kLoraWithHead,
                        .dtype = DType::kBF16,
                        .dropout = 0.1,
                        .row = 16,
                        .micro_batches = 2,
                        .recompute = Recompute::kBlock},
                       5e-3);
}

// Of nf4 the rows of 16 and 32 have blocks that cross rows.
TEST(Gpu, TrainsLoraOnAQuantisedBaseLikeTheCpu) {
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    ExpectLossesOfTheCpu({.method = Method::kLora,
                          .dtype = DType::kBF16,
                          .base = {.format = format, .dequantised_first = true},
                          .dropout = 0.1,
                          .row = 16,
                          .micro_batches = 2,
                          .recompute = Recompute::kBlock},
                         5e-3);
  }
}

TEST(Gpu, TrainsWithNoiseAndSmoothLabelsLikeTheCpu) {
  ExpectLossesOfTheCpu({.row = 16, .micro_batches = 2, .noise = 5, .smoothing = 0.1}, 1e-5);
}

#ifdef TEMPER_GPU_EMULATED
TEST(Gpu, TrainsWithALibrarysAttentionLikeTheCpu) {
  const RunSpec spec = {
      .method = Method::kFull, .dtype = DType::kBF16, .row = 16, .micro_batches = 2, .recompute = Recompute::kBlock};
  gpu::CountedAttention library;
  ExpectLossesOfTheCpu(spec, 5e-3, &library);
  // Three steps of two micro-batches through three blocks: forward, recomputed, and backward.
  EXPECT_EQ(library.runs, 3 * 2 * 3 * 3);
}
#endif

}  // namespace
}  // namespace temper::gpu_test
