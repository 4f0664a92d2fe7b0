// RunEngine: what a training run computes with: its device or the CPU's kernels, the arenas of all tiers, collectives,
// and the executors of its Programs. Nothing is allocated after Reserve.
//
// Does not move: kernels note their time in it. One thread makes and uses it; communicators have their own.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/training_state.h"
#include "comm/nccl/nccl_communicator.h"
#include "plan/compiled_run.h"
#include "run/far_memory.h"
#include "run/opened_model.h"
#include "run/ranks.h"
#include "runtime/timed_kernels.h"

namespace temper {

struct RunEngine {
  RunEngine() = default;
  RunEngine(const RunEngine&) = delete;
  RunEngine& operator=(const RunEngine&) = delete;

  // This rank's GPU, where the run is to compute on one: before anything is compiled, since what is free there decides
  // what is. The same outcome for all ranks; an error where two have the same GPU. All ranks make these calls at the
  // same places.
  Status OpenOwnGpu(const Ranks& ranks);
  // Reserves and touches all memory and makes every kernel, for `run`, which has to outlive this. What memory does not
  // hold lies in `model`'s files and in `spill_folder`.
  Status Reserve(const CompiledRun& run, const RunConfig& config, const Ranks& ranks, OpenedModel& model,
                 const std::string& spill_folder);
  // After an error of this rank: those that wait for it on their GPUs wait no longer, nor does its own GPU for them.
  // The error to tell, which may be another rank's.
  Status LetGo(const Status& error, const Ranks& ranks);

  std::string kernels_name() const { return gpu ? gpu->kernels().name() : kernels->name(); }
  // Where a value of `run` lies; nothing where this rank has none of it, or reads it from the model's files.
  DevicePart Buffer(const std::string& name) const;
  BufferLookup Lookup() const {
    return [this](const std::string& name) { return Buffer(name); };
  }

  KernelTime kernel_time, collective_time;
  std::unique_ptr<Device> gpu;      // of `device: gpu`
  std::unique_ptr<Stream> reading;  // of it: what saves read its memory through
  std::unique_ptr<NcclCommunicator> between_gpus;
  std::unique_ptr<KernelTable> kernels, collectives;
  std::unique_ptr<Arena> arena;
  FarArenas far;
  std::unique_ptr<Executor> train, eval;
  double peak = 0;  // of this rank: FLOP/s in matrix products; measured on a GPU by Reserve; 0: not known

 private:
  Status ReserveOnGpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks);
  Status ReserveOnCpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks);

  const CompiledRun* compiled_ = nullptr;
};

}  // namespace temper
