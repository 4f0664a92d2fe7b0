// Ranks with a device each give the bits of ranks on the host: collectives are enqueued on streams, between kernels and
// beside them, on devices whose memory no other rank or host can access.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "../apart_device.h"
#include "../device_run.h"
#include "comm/local/local_communicator.h"
#include "comm/nccl/nccl_communicator.h"

namespace temper::device_mesh_test {
namespace {

using tiny::Batch;
using tiny::Method;
using tiny::RunSpec;
using tiny::TinyRun;

// The differences on this rank after three steps; empty: none.
std::string Difference(const RunSpec& spec, Timing timing) {
  TinyRun host(spec);
  Communicator& communicator = *spec.communicator;
  const auto kernels = MakeCpuKernels({.threads = 1, .isa = spec.isa, .exchange = [&](AxisSet axes) {
                                         return communicator.MakeExchange(spec.mesh.mesh, axes);
                                       }});
  ApartDevice device(*kernels, timing);
  const auto between = Must(NcclCommunicator::Make(communicator, device));
  const auto collectives = between->Collectives(spec.mesh.mesh);
  DeviceRun run(spec, host, device, collectives.get());
  for (int step = 0; step < 3; ++step) {
    Batch batch = host.MakeBatch(static_cast<uint64_t>(step));
    const Bytes before = communicator.bytes_sent();
    host.Step(batch);
    const Bytes sent = communicator.bytes_sent() - before;
    const Bytes sent_before = between->bytes_sent();
    const Status status = run.Step(batch);
    if (!status.ok()) return status.message();
    if (between->bytes_sent() - sent_before != sent) return fmt::format("bytes sent in step {}", step);
    if (run.losses() != host.losses()) return fmt::format("losses of step {}", step);
  }
  const auto want = host.State(), got = run.State();
  for (const auto& [name, bytes] : want) {
    if (got.at(name) != bytes) return name;
  }
  return want.size() == got.size() ? "" : "buffers";
}

struct Case {
  const char* name;
  MeshSpec mesh;
  Method method = Method::kFull;
  DType dtype = DType::kF32;
  int micro_batches = 2;
  MemorySpec memory = {};
  tiny::Base base = {};
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

MeshSpec Of(std::initializer_list<std::pair<Axis, int>> sizes) {
  MeshSpec spec;
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

std::vector<Case> Cases() {
  MeshSpec interleaved = Of({{Axis::kPp, 2}});
  interleaved.pipeline = {.kind = PipelineKind::kInterleaved, .chunks_per_stage = 2, .layers = {0, 1, 1, 1}};
  return {
      {"dp2", Of({{Axis::kDp, 2}})},
      {"fsdp2_bf16", Of({{Axis::kFsdp, 2}}), Method::kFull, DType::kBF16},
      {"fsdp3_uneven", Of({{Axis::kFsdp, 3}})},
      {"fsdp2_lora", Of({{Axis::kFsdp, 2}}), Method::kLora},
      {"fsdp2_int8",
       Of({{Axis::kFsdp, 2}}),
       Method::kLora,
       DType::kBF16,
       2,
       {},
       {ElementFormat::Int8Rows(), false, true}},
      {"fsdp3_nf4", Of({{Axis::kFsdp, 3}}), Method::kLora, DType::kBF16, 2, {}, {ElementFormat::Nf4(), false, true}},
      {"fsdp2_optimizer_at_host", Of({{Axis::kFsdp, 2}}), Method::kFull, DType::kF32, 2, {.optimizer = Tier::kHost}},
      {"tp2", Of({{Axis::kTp, 2}})},
      {"fsdp2_tp2", Of({{Axis::kFsdp, 2}, {Axis::kTp, 2}})},
      {"cp2", Of({{Axis::kCp, 2}})},
      {"pp2", Of({{Axis::kPp, 2}}), Method::kFull, DType::kF32, 4},
      {"pp2_interleaved", interleaved, Method::kFull, DType::kF32, 4}};
}

class DeviceMesh : public testing::TestWithParam<Case> {};

TEST_P(DeviceMesh, GivesTheBitsOfRanksOnTheHost) {
  const Case& c = GetParam();
  for (const Timing timing : {Timing::kLate, Timing::kKernelsLate, Timing::kRandom}) {
    const int ranks = c.mesh.mesh.ranks();
    ThreadWorld world(ranks);
    std::vector<std::string> differences(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = world.Join(rank);
        RunSpec spec{.method = c.method,
                     .dtype = c.dtype,
                     .base = c.base,
                     .rows_per_micro_batch = c.mesh.mesh.size(DataAxes(c.mesh.mesh)),
                     .micro_batches = c.micro_batches,
                     .threads = 1,
                     .memory = c.memory,
                     .mesh = c.mesh,
                     .communicator = communicator.get()};
        spec.mesh.rank = rank;
        differences[static_cast<size_t>(rank)] = Difference(spec, timing);
      });
    }
    for (std::thread& t : threads) t.join();
    for (const std::string& difference : differences) EXPECT_EQ(difference, "") << static_cast<int>(timing);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, DeviceMesh, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper::device_mesh_test
