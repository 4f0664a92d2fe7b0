#include "cli/machine.h"

#include <array>
#include <ctime>

#include "backend/cpu/team.h"

namespace temper {

DType DefaultDType() {
  return DetectIsa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

namespace {

Result<RunMemory> MemoryNow(Device* gpu) {
  RunMemory memory{.host = FindAvailableMemory()};
  if (gpu != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(memory.gpu, gpu->MeasureMemory());
  }
  return memory;
}

}  // namespace

Result<RunMemory> MemoryOfRank(const Ranks& ranks, Device* gpu) {
  Result<RunMemory> memory = MemoryNow(gpu);
  if (ranks.alone()) return memory;
  TEMPER_RETURN_IF_ERROR(ranks.Agree(memory.status()));
  const Bytes share = ShareOf(memory->host, ranks.communicator()->host_ranks()).bytes;
  std::array<double, 2> least = {-static_cast<double>(share.v), 0};
  if (memory->gpu) least[1] = -static_cast<double>(memory->gpu->free.v);
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceMax(least));
  memory->host.bytes = {static_cast<int64_t>(-least[0])};
  if (memory->gpu) memory->gpu->free = {static_cast<int64_t>(-least[1])};
  return memory;
}

Result<RunMemory> MemoryFor(const Processor& processor) {
  return MemoryNow(processor.device());
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm day = {};
  localtime_r(&now, &day);
  char text[16];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d", &day));
}

Result<RunFacts> MachineFacts(DeviceChoice device, const RankOfMachine& rank) {
  TEMPER_ASSIGN_OR_RETURN(const ProcessorChoice processor, ChooseProcessor(device, rank));
  return RunFacts{.processor = processor.name,
                  .has_bf16 = processor.has_bf16,
                  .device = processor.device(),
                  .cpu_cores = AvailableProcessors(),
                  .today = Today()};
}

}  // namespace temper
