#include "run/engine.h"

#include <fmt/core.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/gpu/gpu_device.h"
#include "base/log.h"
#include "run/processor.h"
#include "run/products_of_run.h"

namespace temper {

Status RunEngine::OpenOwnGpu(const Ranks& ranks) {
  const Result<ProcessorChoice> choice = ChooseProcessor(DeviceChoice::kGpu, ranks.of_machine());
  TEMPER_RETURN_IF_ERROR(ranks.Agree(choice.status()));
  TEMPER_RETURN_IF_ERROR(ranks.CheckDifferent(choice->uuid, [](int one, int other) {
    return Unsupported(fmt::format(
        "ranks {} and {} have the same GPU: each needs its own. Set CUDA_VISIBLE_DEVICES so that each rank sees a "
        "different GPU, or all GPUs of its machine: then it takes the one with its local rank's number",
        one, other));
  }));
  const auto open = [&]() -> Status {
    TEMPER_ASSIGN_OR_RETURN(gpu, OpenGpu(choice->gpu));
    TEMPER_ASSIGN_OR_RETURN(reading, gpu->OpenStream());
    return OkStatus();
  };
  return ranks.Agree(open());
}

Status RunEngine::Reserve(const CompiledRun& run, const RunConfig& config, const Ranks& ranks, OpenedModel& model,
                          const std::string& spill_folder) {
  compiled_ = &run;
  TEMPER_RETURN_IF_ERROR(gpu ? ReserveOnGpu(run, config, ranks) : ReserveOnCpu(run, config, ranks));
  KernelTable& own = gpu ? gpu->kernels() : *kernels;
  TEMPER_ASSIGN_OR_RETURN(
      far, ReserveFar(run.train(), spill_folder, model, gpu.get(), static_cast<int>(*config.machine.threads)));
  const FarTiers tiers = far.tiers();
  for (const Program& program : run.programs) {
    TEMPER_ASSIGN_OR_RETURN(executors[program.name], Executor::Create(program, *arena, own, collectives.get(), tiers));
  }
  if (!gpu) return OkStatus();
  for (const auto& [name, executor] : executors) executor->set_replays(config.machine.graphs);
  TEMPER_ASSIGN_OR_RETURN(const Device::Memory memory, gpu->MeasureMemory());
  if (memory.beside.v + memory.pinned.v > 0) {
    LogInfo(
        fmt::format("beside      {} of the GPU's memory (context, libraries, collectives, other processes; `reserve` "
                    "of a cluster file), {} of the host's, pinned",
                    ToString(memory.beside), ToString(memory.pinned)));
  }
  return OkStatus();
}

void RunEngine::RecordTraces(size_t of_steps, size_t beside_steps) {
  traces.reserve(executors.size());  // executors keep addresses of them
  for (const auto& [name, executor] : executors) {
    executor->TraceInto(&traces.emplace_back(name == kTrainProgram ? of_steps : beside_steps, name));
  }
}

Status RunEngine::ReserveOnGpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks) {
  if (!ranks.alone()) {
    const Mesh& mesh = run.mesh.mesh;
    auto between =
        NcclCommunicator::Make(*ranks.communicator(), *gpu, [&ranks](const Status& cause) { ranks.EndNow(cause); });
    TEMPER_RETURN_IF_ERROR(ranks.Agree(between.status()));
    between_gpus = *std::move(between);
    collectives = between_gpus->Collectives(mesh);
    gpu->Join(*ranks.communicator(), *between_gpus, mesh);
    if (ranks.first()) LogInfo("between     " + between_gpus->library());
  }
  // Before the arena, since this needs some memory for a moment. Without it MFU stays unknown; if there is too little
  // memory for the run, reserving the arena fails.
  const DType dtype = ComputeDType(config);
  const Result<double> measured = MeasureProductPeak(*gpu, dtype);
  if (!measured.ok() && measured.status().code() != StatusCode::kOutOfMemory) return measured.status();
  peak = measured.ok() ? *measured : 0;
  TEMPER_ASSIGN_OR_RETURN(arena, Arena::On(*gpu, run.train().arena_bytes));
  if (between_gpus) between_gpus->Register({arena->At({}), static_cast<size_t>(arena->size().v)});
  const std::string rate = measured.ok()
                               ? fmt::format("{:.0f} TFLOP/s in matrix products of {}", peak * 1e-12, ToString(dtype))
                               : "too little memory is free to measure its matrix products";
  LogInfo(fmt::format("device      {}: {}", gpu->name(), rate));
  return OkStatus();
}

Status RunEngine::ReserveOnCpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks) {
  const Mesh& mesh = run.mesh.mesh;
  CpuOptions options{.threads = static_cast<int>(*config.machine.threads)};
  const Bytes arena_bytes = run.train().arena_bytes;
  if (Communicator* const communicator = ranks.communicator()) {
    options.exchange = [communicator, &mesh](AxisSet axes) { return communicator->MakeExchange(mesh, axes); };
    collectives = std::make_unique<TimedKernels>(communicator->Collectives(mesh), &collective_time);
    TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> memory, communicator->AllocateArena(arena_bytes));
    arena = Arena::Over(memory);
  } else {
    TEMPER_ASSIGN_OR_RETURN(arena, Arena::Create(arena_bytes));
  }
  kernels = std::make_unique<TimedKernels>(MakeCpuKernels(options), &kernel_time);
  return OkStatus();
}

Status RunEngine::ChooseProducts(const Ranks& ranks, const ProductChoices& kept) {
  const std::span<std::byte> memory(arena->At({}), static_cast<size_t>(arena->size().v));
  TEMPER_ASSIGN_OR_RETURN(products, ChooseProductsInTurn(ranks, *gpu, memory, kept));
  for (const auto& [name, executor] : executors) TEMPER_RETURN_IF_ERROR(executor->FillConstants());
  return OkStatus();
}

Status RunEngine::LetGo(const Status& error, const Ranks& ranks) {
  if (!between_gpus) return error;
  if (!ranks.all_know()) between_gpus->Abort(error);
  return between_gpus->LetGo(error);
}

DevicePart RunEngine::Buffer(const std::string& name) const {
  const int i = compiled_->train().FindBuffer(name);
  return i < 0 || far.mapped.contains(name) ? DevicePart() : Of(ProgramKind::kTrain).BufferPart(i);
}

}  // namespace temper
