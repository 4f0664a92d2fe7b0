// The report of `temper plan`: the memory of a compiled step at its peak, by class, its arithmetic, and, if a cluster
// is given, its speed. Memory and arithmetic come from the Program that `temper train` executes; only seconds are
// estimated (plan/simulation.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "compile/memory/memory_policy.h"
#include "compile/mesh/decisions.h"
#include "compile/run/pipeline_facts.h"
#include "compile/run/row_lengths.h"
#include "plan/advice.h"
#include "plan/forecast.h"
#include "program/program.h"
#include "program/program_set.h"
#include "settings/run_config.h"

namespace temper {

// The whole run, as far as its data or max_steps say it.
struct RunLength {
  int64_t steps = 0;
  int64_t steps_per_epoch = 0;  // 0: its data was not read
  double tokens = 0;
  PackedRows packed = {};  // of its data
};

struct PlanFacts {
  std::string model;  // as the user gave it
  std::string architecture;
  std::string method, dtype, recompute;
  int64_t parameters = 0, active_parameters = 0, trainable_parameters = 0;  // active: those that a token passes
  std::optional<ProgramHashes> hashes_without_limits;   // CompiledRun's: those that checkpoints have
  std::string teacher;                                  // "large (LlamaForCausalLM), 1235.81 M parameters"; "": none
  int64_t rows = 0, row_tokens = 0, micro_batches = 0;  // rows of a rank's micro-batch
  int64_t tokens = 0;                                   // per step, assuming full rows unless `fill` is given
  std::string tiers;                                    // the tiers of values; empty: everything on the device
  std::vector<StepOption> options;                      // the options considered, the chosen one first
  std::string rates;                                    // by which they were compared; empty: there was no choice
  std::string mesh;                                     // empty: one rank
  std::string mesh_note;                                // a note on the mesh; may be empty
  int64_t ranks = 1, data_ranks = 1;                    // data_ranks: with different rows
  std::optional<PipelineFacts> pipeline;
  std::vector<std::string> distinct;  // weights and adapters of one block of each kind, and those outside of blocks
  Flops model_flops;                  // per step, assuming full rows of one document each unless `fill` is given
  std::vector<Decision> decisions;    // of a mesh
  Bytes transfer_buffers;             // host memory for transfers to and from a disk
  Bytes available;                    // memory of this machine; 0: unknown
  std::optional<RowFill> fill;        // if the run's data was read
  RowLengths lengths;                 // of its other Programs' rows
  std::optional<RunLength> length;
  std::vector<std::string> refusals;  // what the run would be refused for: "because of its data: ..."
};

// The run on a cluster; members are nullptr if none is given.
struct PlanOnCluster {
  const Cluster* cluster = nullptr;
  const Forecast* forecast = nullptr;
  std::vector<Remedy> remedies;  // if it does not fit
  std::vector<Remedy> faster;    // if its step takes minutes
};

// "12.30 ms" below a second, for which ToString prints 0.0 s.
std::string ShortTime(Seconds s);

std::string PlanText(const Program& train, const PlanFacts& facts, const PlanOnCluster& on = {});
std::string PlanJson(const Program& train, const PlanFacts& facts, const PlanOnCluster& on = {});

}  // namespace temper
