// RunEngine: everything that computes in a training run: its device or the CPU's kernels, the arenas of all tiers,
// collectives, and the executors of its Programs. Nothing is allocated in a step.
//
// Cannot be moved: kernels store their time in it. One thread creates and uses it; communicators have their own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"
#include "comm/nccl/nccl_communicator.h"
#include "compile/run/compiled_run.h"
#include "program/program_of_rows.h"
#include "run/far_memory.h"
#include "run/opened_model.h"
#include "run/ranks.h"
#include "runtime/timed_kernels.h"
#include "runtime/trace.h"
#include "train/trainer.h"

namespace temper {

struct RunEngine {
  RunEngine() = default;
  RunEngine(const RunEngine&) = delete;
  RunEngine& operator=(const RunEngine&) = delete;

  // Opens this rank's GPU, if the run is to compute on one. Call it before compiling,
  // which depends on the free memory there. The same result on all ranks; an error if
  // two have the same GPU. All ranks make these calls at the same places.
  Status OpenOwnGpu(const Ranks& ranks);
  // Reserves and touches all memory and makes every kernel for `run`, which must outlive this. Values that memory does
  // not hold are in `model`'s files and in `spill_folder`.
  Status Reserve(const CompiledRun& run, const RunConfig& config, const Ranks& ranks, OpenedModel& model,
                 const std::string& spill_folder);
  // After Reserve: executors record up to so many events of steps, and of each other Program, in `traces`.
  void RecordTraces(size_t of_steps, size_t beside_steps);
  // On a GPU, after Reserve: chooses the algorithms of its matrix products (run/products_of_run.h), with the arena as
  // memory, which is then as Reserve left it.
  Status ChooseProducts(const Ranks& ranks, const ProductChoices& kept);
  // After an error of this rank: its GPU stops waiting for other ranks, and theirs for it. Returns the error to report,
  // which may be another rank's.
  Status LetGo(const Status& error, const Ranks& ranks);

  std::string kernels_name() const { return gpu ? gpu->kernels().name() : kernels->name(); }
  // The memory of a value of `run`; none if this rank does not have it, or reads it from the model's files.
  DevicePart Buffer(const std::string& name) const;
  // REQUIRES: after Reserve; the run has such a Program.
  Executor& Of(ProgramKind kind) const { return *executors.at(ProgramName(kind)); }
  // The executors of that kind's Programs for shorter rows. REQUIRES: the run has Programs of these `rows`.
  std::vector<ShorterRowsExecutor> ShorterOf(ProgramKind kind, const std::vector<int64_t>& rows) const {
    std::vector<ShorterRowsExecutor> shorter;
    for (const int64_t row : rows) shorter.push_back({row, executors.at(ProgramOfRows(kind, row)).get()});
    return shorter;
  }
  BufferLookup Lookup() const {
    return [this](const std::string& name) { return Buffer(name); };
  }

  KernelTime kernel_time, collective_time;
  std::unique_ptr<Device> gpu;      // with `device: gpu`
  std::unique_ptr<Stream> reading;  // of `gpu`; saves read its memory through it
  std::unique_ptr<NcclCommunicator> between_gpus;
  std::unique_ptr<KernelTable> kernels, collectives;
  std::unique_ptr<Arena> arena;
  FarArenas far;
  std::map<std::string, std::unique_ptr<Executor>, std::less<>> executors;  // of all Programs, by name
  std::vector<Trace> traces;                                                // of each Program, if it was asked for
  ProductChoices products;                                                  // what a checkpoint should keep
  double peak = 0;  // this rank's FLOP/s in matrix products; Reserve measures it on a GPU; 0: unknown

 private:
  Status ReserveOnGpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks);
  Status ReserveOnCpu(const CompiledRun& run, const RunConfig& config, const Ranks& ranks);

  const CompiledRun* compiled_ = nullptr;
};

}  // namespace temper
