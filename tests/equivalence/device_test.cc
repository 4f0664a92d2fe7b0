// A Program on a device whose memory the host cannot touch and whose work is done late gives the bits that it gives on
// the host.
#include <gtest/gtest.h>

#include "../apart_device.h"
#include "../device_run.h"

namespace temper {
namespace {

using tiny::Batch;
using tiny::RunSpec;
using tiny::TinyRun;

void ExpectSameBits(const RunSpec& spec) {
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  for (int step = 0; step < 3; ++step) {
    Batch batch = host.MakeBatch(static_cast<uint64_t>(step));
    host.Step(batch);
    ASSERT_TRUE(device.Step(batch).ok());
    ASSERT_EQ(device.losses(), host.losses()) << "step " << step;
  }
  const auto want = host.State(), got = device.State();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, bytes] : want) EXPECT_EQ(got.at(name), bytes) << name;
}

TEST(Device, FullTrainingGivesTheBitsOfTheHost) {
  ExpectSameBits({});
}

TEST(Device, LoraWithDropoutAndRecomputationGivesTheBitsOfTheHost) {
  ExpectSameBits({.method = tiny::Method::kLora, .dropout = 0.1, .recompute = Recompute::kBlock});
}

TEST(Device, AStepWaitsForTheDeviceOnce) {
  const RunSpec spec;
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  const int before = apart.synchronized();
  Batch batch = host.MakeBatch(1);
  ASSERT_TRUE(device.Step(batch).ok());
  EXPECT_EQ(apart.synchronized() - before, 2) << "for the scalars, and at the end of the step";
  EXPECT_EQ(apart.waiting(), 0u);
}

TEST(Device, FromTheSecondStepOnSegmentsAreReplayed) {
  const RunSpec spec;
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  Batch batch = host.MakeBatch(1);
  ASSERT_TRUE(device.Step(batch).ok());
  EXPECT_EQ(apart.replayed(), 0) << "kernels are loaded by running once";
  EXPECT_EQ(apart.recorded(), static_cast<int>(device.program().bindings.size()));
  ASSERT_TRUE(device.Step(batch).ok());
  const auto calls = std::ranges::count(device.program().schedule, Call::Kind::kRun, &Call::kind);
  EXPECT_EQ(apart.replayed(), calls);
  device.executor().set_replays(false);
  ASSERT_TRUE(device.Step(batch).ok());
  EXPECT_EQ(apart.replayed(), calls);
}

TEST(Device, AnErrorOfItsWorkEndsTheStepAndSticks) {
  const RunSpec spec;
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  Batch batch = host.MakeBatch(1);
  batch.token[5] = 1 << 20;
  const Status status = device.Step(batch);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("token 5 of the batch"), std::string::npos) << status.message();
  batch.token[5] = 0;
  EXPECT_EQ(device.Step(batch).message(), status.message());
}

TEST(DeviceDeathTest, TheHostMayNotLookAtItsMemory) {
  const RunSpec spec;
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  EXPECT_DEATH((void)device.executor().BufferView(0), "is not in the host's memory");
}

}  // namespace
}  // namespace temper
