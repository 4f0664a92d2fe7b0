// Simulation: what a step takes on a cluster, found by walking the Program's schedule as the executor does, with the
// seconds of each instruction by the cost model instead of kernels. Nothing is run and no memory is held.
//
// Queues: kernels and collectives that are needed at once follow each other on `compute`; those in the background on
// `communicate`, beside them, and a kernel waits for exactly those that the executor would let it wait for
// (program/waits.h). Where ranks share one machine's cores (Cluster::shared), a collective in the background takes the
// time of kernels. All ranks of a mesh without stages do alike, so one rank stands for all.
#pragma once

#include <vector>

#include "plan/cluster.h"
#include "program/program.h"
#include "program/trace_text.h"

namespace temper {

// All executions of an op in a phase.
struct OpTotal {
  Op op;
  Phase phase;
  int64_t runs = 0;
  Seconds seconds;
};

struct Simulation {
  Seconds step;
  // What the step's time on the compute queue is spent on; their sum is `step`.
  Seconds arithmetic, memory, launches;
  Seconds collectives;                         // needed at once
  Seconds waiting;                             // for collectives in the background
  Seconds hidden;                              // of collectives in the background, beside kernels
  Bytes sent_within_host, sent_between_hosts;  // by a rank, on average
  std::vector<OpTotal> ops;                    // longest first
  std::vector<TraceRow> events;                // where asked for, in order of issue
  // When each micro-batch was done; the update comes after the last.
  std::vector<Seconds> micro_batches;

  // The largest of the terms above, in words.
  const char* Bottleneck() const;
};

// The events as a Chrome trace, in the format of `temper train --profile`.
std::string TraceText(const Simulation& simulation);

// `mesh`: whose rank 0 runs `program`. REQUIRES: the mesh has at most as many ranks as the cluster devices,
// and no stages (pp): these do different work and wait for each other.
Simulation Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events = false);

}  // namespace temper
