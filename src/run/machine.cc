#include "run/machine.h"

#include <algorithm>
#include <ctime>

#include "backend/cpu/cpu_backend.h"
#include "backend/gpu/gpu_device.h"
#include "base/team.h"

namespace temper {

namespace {

Result<ProcessMemory> MemoryNow(Device* gpu) {
  ProcessMemory memory{.host = FindAvailableMemory()};
  if (gpu != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(memory.gpu, RoomOf(*gpu));
  }
  return memory;
}

}  // namespace

Result<RankMemory> MemoryOfRank(const Ranks& ranks, Device* gpu) {
  Result<ProcessMemory> found = MemoryNow(gpu);
  TEMPER_RETURN_IF_ERROR(ranks.Agree(found.status()));
  RankMemory memory{
      .each = found->host, .ranks_per_machine = 1, .gpu = found->gpu, .packs = ReadsPackedWeights(DetectIsa())};
  if (ranks.alone()) return memory;
  const RankOfMachine own = ranks.of_machine();
  const bool in_order = ranks.rank() % own.ranks == own.rank;
  // Over all ranks: the least share of memory, and free memory of the fullest GPU; the most and the fewest ranks of a
  // machine; whether any is numbered differently, and whether any reads no packed weights.
  double all[] = {-static_cast<double>(ShareOf(memory.each, own.ranks).bytes.v),
                  gpu == nullptr ? 0.0 : -static_cast<double>(memory.gpu->free.v),
                  static_cast<double>(own.ranks),
                  -static_cast<double>(own.ranks),
                  in_order ? 0.0 : 1.0,
                  memory.packs ? 0.0 : 1.0};
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceMax(all));
  memory.each.bytes = {static_cast<int64_t>(-all[0])};
  if (memory.gpu) memory.gpu->free = {static_cast<int64_t>(-all[1])};
  memory.packs = all[5] == 0;
  memory.ranks_per_machine = all[2] == -all[3] && all[4] == 0 ? own.ranks : 0;
  return memory;
}

Result<ProcessMemory> MemoryFor(const Processor& processor) {
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

Result<RunFacts> CommonFacts(const Ranks& ranks, const RunConfig& config) {
  if (ranks.alone()) return MachineFacts(config.machine.device);
  if (config.mesh.pp > 1) LoadKernelsWhenOpened();
  // Unless GPUs are requested, all ranks use what the first one has.
  auto own = MachineFacts(config.machine.device, ranks.of_machine());
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  constexpr char kGpu[] = "gpu";
  TEMPER_ASSIGN_OR_RETURN(const std::string device, ranks.FromFirst(own->device == DeviceChoice::kGpu ? kGpu : ""));
  own = MachineFacts(device == kGpu ? DeviceChoice::kGpu : DeviceChoice::kCpu, ranks.of_machine());
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  RunFacts facts = *std::move(own);
  if (config.machine.nprocs == 1) {
    facts.cpu_cores = std::min<int64_t>(facts.cpu_cores, ranks.communicator()->processors());
  }
  TEMPER_ASSIGN_OR_RETURN(facts.today, ranks.FromFirst(facts.today));
  constexpr char kBf16[] = "bf16";
  TEMPER_ASSIGN_OR_RETURN(const std::string type, ranks.FromFirst(facts.has_bf16 ? kBf16 : ""));
  facts.has_bf16 = type == kBf16;
  return facts;
}

RankMemory MemoryForPlan(DeviceChoice device, int ranks, std::unique_ptr<Device>* opened) {
  RankMemory memory{.each = ShareOf(FindAvailableMemory(), ranks),
                    .ranks_per_machine = ranks,
                    .packs = ReadsPackedWeights(DetectIsa())};
  if (device != DeviceChoice::kGpu) return memory;
  const auto choice = ChooseProcessor(DeviceChoice::kGpu, {.ranks = ranks, .launched = true});
  if (!choice.ok()) return memory;  // a plan needs none
  auto gpu = OpenGpu(choice->gpu);
  if (!gpu.ok()) return memory;
  auto room = RoomOf(**gpu);
  if (!room.ok()) return memory;
  *opened = *std::move(gpu);
  memory.gpu = *std::move(room);
  return memory;
}

}  // namespace temper
