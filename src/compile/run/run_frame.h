// RunFrame: what is compiled of a run, and what is known of it, before any rank or any memory matters.
#pragma once

#include "compile/run/compiled_run.h"

namespace temper {

struct RunFrame {
  DType dtype = DType::kF32;
  bool on_gpu = false;
  CompiledRun facts;  // of rank 0; without Programs and what follows from them
  // Those of the objective, for the tokens of all ranks' micro-batch; the first one trains. Then the same for shorter
  // rows (CompiledRun::lengths).
  std::vector<Graph> graphs;
  std::vector<std::string> names;  // of their Programs
  std::vector<bool> train;         // which of them do
  size_t longest = 0;              // how many of them have the longest rows; those come first
  StepSpec spec;                   // of rank 0; its memory as the settings say

  // kAllLengths: with those of shorter rows that such a run has. kTrainingAlone: without those that only read, as
  // evaluation.
  enum class Graphs : uint8_t { kAllLengths, kOneLength, kTrainingAlone };
  // REQUIRES: `config` is resolved. `kept`: decisions of the resumed run.
  static Result<RunFrame> Of(const Model& model, const RunConfig& config, int ranks, const KeptDecisions& kept,
                             Graphs graphs = Graphs::kAllLengths);

  const Graph& forward() const { return graphs.front(); }
  // Borrows from this, as the result of Prepare does.
  std::vector<RunGraph> RunGraphs() const;
  Result<PreparedStep> Prepare(int rank) const;
  // `rank`'s run with these Programs, chosen within `memory`.
  Result<CompiledRun> Finished(int rank, CompiledPrograms compiled, const MemorySpec& memory) const;
};

// The training forward pass of one device with its adapters, before the mesh splits it (for DrawSharding).
Result<Graph> AdaptedForward(const Model& model, const RunConfig& config);

// The coefficient of the loss that balances experts: the user's, or what config.json asks for. Errors: a model without
// experts.
Result<double> RouterAuxLossCoef(const ModelFacts& facts, const RunConfig& config);

}  // namespace temper
