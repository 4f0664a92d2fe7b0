// The training step of a model: from its forward graph to Programs. The order of the passes: partition, fuse,
// differentiate, recompute, rings, gradient sync, join adapters, collectives, optimizer (prepared_step); memory tiers,
// update in place, addresses (memory/memory_policy).
#pragma once

#include <span>
#include <vector>

#include "compile/memory/machine_room.h"
#include "compile/memory/memory_policy.h"
#include "compile/prepared_step.h"
#include "compile/step_spec.h"
#include "program/program_set.h"

namespace temper {

// "train" and "eval": the same model without ops that only training has (dropout).
std::vector<RunGraph> TrainAndEval(const Graph& train, const Graph& eval);

struct CompiledPrograms {
  ProgramSet programs;              // in the order of the graphs
  std::vector<Decision> decisions;  // made by cost
  ChosenMemory memory;
};

// Programs that share arenas, for rank spec.mesh.rank. REQUIRES: if one of `graphs` trains, the first does, and the
// others that do are the same step with shorter rows; those of shorter rows come last. Graphs of which none trains need
// one rank.
Result<CompiledPrograms> CompileGraphs(std::span<const RunGraph> graphs, const StepSpec& spec);
// The same for one rank, whose graphs are prepared, and of its choices for those given.
Result<CompiledPrograms> FitStep(const PreparedStep& step, const MemorySpec& memory,
                                 std::span<const StepChoice> choices);
// As CompileGraphs for graphs of which none trains, within the limits of this machine (LimitsOfMachine, CheckRoom), if
// spec.memory sets none; logs the chosen limits, if any.
Result<CompiledPrograms> CompileForwardWithin(const ProcessMemory& available, std::span<const RunGraph> graphs,
                                              StepSpec spec);

}  // namespace temper
