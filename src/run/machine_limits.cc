#include "run/machine_limits.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "comm/nccl/nccl_collective.h"

namespace temper {
namespace {

// Part of an open GPU's free memory that CUDA and its libraries load when kernels first run, and recorded graphs. An
// assumption, like `reserve` in a cluster file: a run prints the real size (`beside`).
constexpr Bytes kLoadedLater = MiB(512);
// NCCL buffers 4 MiB (NCCL_BUFFSIZE) per channel and direction, and has up to 32 channels to a communicator.
constexpr Bytes kPerCommunicator = MiB(4) * 2 * 32;

KernelSpec SpecOf(const Segment& segment, const Instruction& instruction) {
  KernelSpec spec{.op = instruction.op, .attributes = instruction.attributes};
  for (const int i : instruction.inputs) spec.inputs.push_back(segment.operands[static_cast<size_t>(i)]);
  for (const int i : instruction.outputs) spec.outputs.push_back(segment.operands[static_cast<size_t>(i)]);
  return spec;
}

}  // namespace

Bytes RoomOnGpu(const Program& program, Bytes free, int stages) {
  std::array<Bytes, kNumStreamUses> scratch = {};
  std::set<std::pair<std::string, StreamUse>> communicators;
  for (const Segment& segment : program.segments) {
    for (const Instruction& i : segment.instructions) {
      if (!i.attributes.Has("axes")) continue;
      const KernelSpec spec = SpecOf(segment, i);
      const StreamUse use = IsCollective(i.op) ? StreamOfCollective(spec) : StreamUse::kCompute;
      if (!IsTransfer(i.op)) communicators.emplace(i.attributes.String("axes"), use);
      if (!IsCollective(i.op)) continue;
      Bytes& most = scratch[static_cast<size_t>(use)];
      most = std::max(most, NcclScratchOf(spec).size);
    }
  }
  const auto number = static_cast<int64_t>(communicators.size()) + NeighbourCommunicators(stages);
  Bytes taken = kLoadedLater + kPerCommunicator * number;
  for (const Bytes of_stream : scratch) taken += of_stream;
  return std::max(free - taken, Bytes{});
}

Result<GpuRoom> RoomOf(Device& gpu) {
  TEMPER_ASSIGN_OR_RETURN(const Device::Memory memory, gpu.MeasureMemory());
  return GpuRoom{.total = memory.total, .free = memory.free, .for_arena = RoomOnGpu, .holders = [&gpu] {
                   return gpu.MemoryHolders();
                 }};
}

}  // namespace temper
