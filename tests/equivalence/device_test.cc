// A Program on a device whose memory the host cannot access, and which works late, gives the same bits as on the host.
#include <gtest/gtest.h>

#include "../apart_device.h"
#include "../device_run.h"
#include "graph/named_ops.h"

namespace temper::device_test {
namespace {

using tiny::Batch;
using tiny::RunSpec;
using tiny::TinyRun;

// The differences after three steps; empty: none. `prepare` may break the device.
std::string Difference(const RunSpec& spec, Timing timing, const std::function<void(ApartDevice&)>& prepare = nullptr) {
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels, timing);
  if (prepare != nullptr) prepare(apart);
  DeviceRun device(spec, host, apart);
  for (int step = 0; step < 3; ++step) {
    Batch batch = host.MakeBatch(static_cast<uint64_t>(step));
    host.Step(batch);
    const Status status = device.Step(batch);
    if (!status.ok()) return status.message();
    if (device.losses() != host.losses()) return fmt::format("losses of step {}", step);
  }
  const auto want = host.State(), got = device.State();
  if (got.size() != want.size()) return "buffers";
  for (const auto& [name, bytes] : want) {
    if (got.at(name) != bytes) return name;
  }
  return "";
}

constexpr Timing kTimings[] = {Timing::kLate, Timing::kKernelsLate, Timing::kRandom};

void ExpectSameBits(const RunSpec& spec) {
  for (const Timing timing : kTimings) EXPECT_EQ(Difference(spec, timing), "") << static_cast<int>(timing);
}

TEST(Device, FullTrainingGivesTheBitsOfTheHost) {
  ExpectSameBits({});
}

TEST(Device, LoraWithDropoutAndRecomputationGivesTheBitsOfTheHost) {
  ExpectSameBits({.method = tiny::Method::kLora, .dropout = 0.1, .recompute = Recompute::kBlock});
}

// Every placement of values outside the device gives the bits of the host with the same placement, which are those
// without limits (memory_test.cc).
std::vector<MemorySpec> Placements(const RunSpec& spec) {
  const Bytes everything = TinyRun(spec).train().arena_bytes;
  const Bytes limit{everything.v * 8 / 10};
  return {{.policy = TierPolicy::kHost},
          {.policy = TierPolicy::kHost, .activations = Tier::kHost},
          {.optimizer = Tier::kHost},
          {.optimizer = Tier::kDisk},
          {.weights = Tier::kDisk, .gradients = Tier::kDisk, .optimizer = Tier::kDisk},
          {.device = limit},
          {.device = limit, .host = limit / 2, .disk = true}};
}

class DeviceMemory : public testing::TestWithParam<int> {};

TEST_P(DeviceMemory, EveryPlacementGivesTheBitsOfTheHost) {
  RunSpec spec = std::array<RunSpec, 4>{
      RunSpec{}, RunSpec{.dtype = DType::kBF16, .recompute = Recompute::kBlock},
      RunSpec{.method = tiny::Method::kLora, .dtype = DType::kBF16, .dropout = 0.1},
      RunSpec{.method = tiny::Method::kLora,
              .dtype = DType::kBF16,
              .base = {.format = ElementFormat::Nf4(), .dequantised_first = true}}}[static_cast<size_t>(GetParam())];
  for (const MemorySpec& memory : Placements(spec)) {
    RunSpec placed = spec;
    placed.memory = memory;
    ExpectSameBits(placed);
  }
}
INSTANTIATE_TEST_SUITE_P(Runs, DeviceMemory, testing::Range(0, 4));

// Shows that these tests would detect a missing wait, by omitting each kind.
// In a separate process: a kernel whose scratch is overwritten may follow a wrong index anywhere.
TEST(Device, AMissingWaitGivesWrongBytes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const RunSpec spec{.memory = {.policy = TierPolicy::kHost, .activations = Tier::kHost}};
  for (const auto& waits :
       {std::pair(StreamUse::kCompute, Timing::kLate), std::pair(StreamUse::kEvictions, Timing::kKernelsLate),
        std::pair(StreamUse::kFetches, Timing::kKernelsLate)}) {
    const StreamUse use = waits.first;
    const Timing timing = waits.second;
    const auto dies_of_wrong_bytes = [&] {
      if (!Difference(spec, timing, [&](ApartDevice& apart) { apart.ForgetWaitsOf(use); }).empty()) std::abort();
    };
    EXPECT_DEATH(dies_of_wrong_bytes(), "") << static_cast<int>(use);
    EXPECT_EQ(Difference(spec, timing), "");
  }
}

TEST(Device, MovesBesideKernelsDoNotBlockTheHost) {
  const RunSpec spec{.method = tiny::Method::kLora, .memory = {.weights = Tier::kHost, .activations = Tier::kHost}};
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  Batch batch = host.MakeBatch(1);
  for (int step = 0; step < 2; ++step) {
    const int synchronized = apart.synchronized(), awaited = apart.awaited();
    ASSERT_TRUE(device.Step(batch).ok());
    EXPECT_EQ(apart.synchronized() - synchronized, 2) << "for the scalars, and at the end of the step";
    EXPECT_EQ(apart.awaited() - awaited, 0);
  }
  EXPECT_GT(apart.replayed(), 0);
}

TEST(Device, ATraceHasTheTimesOfMovesBesideKernels) {
  const RunSpec spec{.method = tiny::Method::kLora, .memory = {.weights = Tier::kHost}};
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  Batch batch = host.MakeBatch(1);
  Trace trace(10000);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(device.Step(batch, &trace).ok());
  int moves = 0;
  for (const Trace::Event& event : trace.events()) {
    if (std::string_view(event.queue) == kComputeQueue) continue;
    ++moves;
    EXPECT_EQ(event.op, Op::kFetch);
    EXPECT_LE(begin, event.begin);
    EXPECT_LE(event.begin, event.end);
    EXPECT_LE(event.end, std::chrono::steady_clock::now());
  }
  EXPECT_GT(moves, 0);
}

TEST(Device, AStepSynchronizesOnce) {
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
  EXPECT_EQ(apart.replayed(), 0) << "the first run loads the kernels";
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
  // Found when the host waits: the stream reports its error.
  EXPECT_EQ(status.message().find("of forward before the blocks: "), 0u) << status.message();
  batch.token[5] = 0;
  EXPECT_EQ(device.Step(batch).message(), status.message());
}

TEST(DeviceDeathTest, TheHostMayNotAccessItsMemory) {
  const RunSpec spec;
  TinyRun host(spec);
  const auto kernels = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
  ApartDevice apart(*kernels);
  DeviceRun device(spec, host, apart);
  EXPECT_DEATH((void)device.executor().BufferView(0), "is not in the host's memory");
}

}  // namespace
}  // namespace temper::device_test
