#include "cli/machine.h"

#include <ctime>

#include "backend/cpu/team.h"

namespace temper {

DType DefaultDType() {
  return DetectIsa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

Result<AvailableMemory> MemoryOfRank(const Ranks& ranks) {
  AvailableMemory available = FindAvailableMemory();
  if (ranks.alone()) return available;
  double least = -static_cast<double>(ShareOf(available, ranks.communicator()->host_ranks()).bytes.v);
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceMax({&least, 1}));
  available.bytes = {static_cast<int64_t>(-least)};
  return available;
}

AvailableMemory MemoryFor(const ProcessorChoice& processor) {
  return processor.on_gpu() ? AvailableMemory{kNoLimit} : FindAvailableMemory();
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
