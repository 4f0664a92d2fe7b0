// The report of `temper plan`: what a compiled step will hold in memory at its fullest moment, by class, what it will
// compute, and, where a cluster is named, how fast. Memory and arithmetic come from the Program that `temper train`
// executes; only seconds are estimated (plan/simulation.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/memory/memory_policy.h"
#include "compile/mesh/decisions.h"
#include "plan/advice.h"
#include "plan/cluster.h"
#include "plan/forecast.h"
#include "program/program.h"

namespace temper {

// How the stages of a pipeline share the work.
struct PipelineFacts {
  std::string schedule;     // "1f1b"
  std::vector<int> layers;  // blocks of each run of blocks; runs are dealt to stages in turn
  int stages = 1;
  int micro_batches = 1;
  double bubble = 0;             // share of the stages' time in which they wait, where all blocks take equally long
  int in_flight = 0;             // micro-batches that this stage has begun and not ended, at most, over its runs
  std::string ToString() const;  // "1f1b: 2 stages, runs of 4, 4 blocks, 8 micro-batches, bubble 11.1 %"
};

struct PlanFacts {
  std::string model;  // as the user gave it
  std::string architecture;
  std::string method, dtype, recompute;
  int64_t parameters = 0, trainable_parameters = 0;
  int64_t rows = 0, row_tokens = 0, micro_batches = 0;  // rows of a rank's micro-batch
  int64_t tokens = 0;                                   // of a step, of full rows unless `fill` knows better
  std::string tiers;                                    // what lives in which tier; empty: all on the device
  std::vector<StepOption> options;                      // what else was considered; what was chosen first
  std::string mesh;                                     // empty: one rank
  std::string mesh_note;                                // what else to know of it; may be empty
  int64_t ranks = 1, data_ranks = 1;                    // data_ranks: that have rows of their own
  std::optional<PipelineFacts> pipeline;
  std::vector<std::string> distinct;  // weights and adapters of one block of each kind, and of none
  Flops model_flops;                  // of a step, of full rows that are one document each unless `fill` knows better
  std::vector<Decision> decisions;    // of a mesh
  Bytes transfer_buffers;             // of the host's memory: for what is on its way to and from a disk
  Bytes available;                    // memory of this machine; 0: unknown
  std::optional<RowFill> fill;        // where the run's data was read
};

// The run on a cluster; nullptr members: none was named.
struct PlanOnCluster {
  const Cluster* cluster = nullptr;
  const Forecast* forecast = nullptr;
  std::vector<Remedy> remedies;  // where it does not fit
};

std::string PlanText(const Program& train, const PlanFacts& facts, const PlanOnCluster& on = {});
std::string PlanJson(const Program& train, const PlanFacts& facts, const PlanOnCluster& on = {});

}  // namespace temper
