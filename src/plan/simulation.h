// Simulation: what a step takes on a cluster, found by walking the Program's schedule as the executor does, with the
// seconds of each instruction by the cost model instead of kernels. Nothing is run and no memory is held.
//
// Queues: kernels and collectives that are needed at once follow each other on `compute`; those in the background on
// `communicate`, beside them, and a kernel waits for exactly those that the executor would let it wait for
// (program/waits.h). Where ranks share one machine's cores (Cluster::shared), a collective in the background takes the
// time of kernels.
//
// Ranks of a stage do alike, so one stands for all. Stages of a pipeline run side by side: `send` and `receive` of each
// do one transfer after the other, which begins when both ends have come to it.
#pragma once

#include <span>
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
  // What the rank's time on the compute queue is spent on; their sum is `step`.
  Seconds arithmetic, memory, launches;
  Seconds collectives;                         // needed at once
  Seconds waiting;                             // for collectives in the background
  Seconds stages;                              // waiting for other stages: the bubble
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

// `stages`: the program of the first rank of each stage of the mesh. One result for each. REQUIRES: the mesh has at
// most as many ranks as the cluster devices; the programs are those of one run, whose stages wait for nobody for ever
// (compile/pipeline_schedule.h).
std::vector<Simulation> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                 bool keep_events = false);
// Of a mesh without stages.
Simulation Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events = false);

}  // namespace temper
