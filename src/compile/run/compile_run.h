// Compiles a run.
//   CompileRun           as its settings say, also for another machine
//   CompileWithin        for this machine: operands of products are packed if there is room, and the run gets the
//                        machine's limits if there is not
//   CompileStages, CompileStagesWithin
//                        the same for all stages of a pipeline
//   CompileTrainProgram  the training Program alone
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compile/memory/machine_room.h"
#include "compile/run/compiled_run.h"

namespace temper {

// REQUIRES: `config` is resolved. `rank` of `ranks`. `kept`: decisions of the resumed run. `memory`: limits and rates
// of another machine; nullptr: those of `config`.
Result<CompiledRun> CompileRun(const Model& model, const RunConfig& config, int ranks = 1, int rank = 0,
                               const KeptDecisions& kept = {}, const MemorySpec* memory = nullptr);

// The same without the Programs that only read, for figures of a step. `memory`: likewise.
Result<CompiledRun> CompileTrainProgram(const Model& model, const RunConfig& config, int ranks, int rank,
                                        const MemorySpec& memory);

// The result of `compile` for the first rank of each stage; for rank 0 without stages.
Result<std::vector<CompiledRun>> CompileStages(int ranks, const std::function<Result<CompiledRun>(int rank)>& compile);

// Asks for the rates to choose by. All ranks call it once per compilation, at the same place. `needed`: whether choices
// of this rank depend on rates, or why it does not compile. nullopt: no rank's do.
using AskRates = std::function<Result<std::optional<RunRates>>(const Result<bool>& needed)>;

// CompileRun for this machine: if `config` sets no limits and the run takes more than
// `available`, it gets the machine's limits (compile/memory/machine_room.h); values that memory
// does not hold are read from the model's files or kept on the disk. Each stage of a pipeline
// has its own need and limits. On a GPU with unknown memory, the run is compiled as it is.
// If `available.packs`, operands of products are packed as far as everything then fits on the device (PackedOperands).
// `ask` is called if it is given, otherwise rates are typical ones.
Result<CompiledRun> CompileWithin(const RankMemory& available, const Model& model, const RunConfig& config,
                                  int ranks = 1, int rank = 0, const KeptDecisions& kept = {},
                                  const AskRates& ask = nullptr);

// CompileWithin for the first rank of each stage. `asked`: MemorySpecOf(config), perhaps with other rates. `ask` is
// called once for all of them.
Result<std::vector<CompiledRun>> CompileStagesWithin(const RankMemory& available, const Model& model,
                                                     const RunConfig& config, int ranks, const MemorySpec& asked,
                                                     const AskRates& ask = nullptr);

}  // namespace temper
