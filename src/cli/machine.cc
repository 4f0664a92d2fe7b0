#include "cli/machine.h"

#include <ctime>

#include "backend/cpu/team.h"

namespace temper {

DType DefaultDType() {
  return DetectIsa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

Result<RankMemory> MemoryOfRank(const Ranks& ranks) {
  AvailableMemory available = FindAvailableMemory();
  if (ranks.alone()) return RankMemory{available, 1};
  const RankOfMachine own = ranks.of_machine();
  const bool in_order = ranks.rank() % own.ranks == own.rank;
  // Of all: the least share; the most and the fewest ranks of a machine; whether any is numbered otherwise.
  double all[] = {-static_cast<double>(ShareOf(available, own.ranks).bytes.v), static_cast<double>(own.ranks),
                  -static_cast<double>(own.ranks), in_order ? 0.0 : 1.0};
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceMax(all));
  available.bytes = {static_cast<int64_t>(-all[0])};
  const bool known = all[1] == -all[2] && all[3] == 0;
  return RankMemory{available, known ? own.ranks : 0};
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
