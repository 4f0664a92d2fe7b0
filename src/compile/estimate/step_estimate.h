// step_estimate: estimates the duration of a step by walking its Program as the executor does, with the seconds of a
// cost model instead of kernels. It runs nothing and allocates no device memory. Used by passes that choose by cost,
// and by `temper plan` (plan/simulation.h).
//
// Queues: kernels and blocking collectives and moves run one after another on `compute`. Background work has a queue
// per lane (program/waits.h): collectives, and the moves of each link and direction (compile/estimate/move_lanes.h). A
// kernel waits for exactly the same items as in the executor.
#pragma once

#include <functional>
#include <vector>

#include "compile/rates/device_rates.h"
#include "compile/residency/residency.h"
#include "program/program.h"
#include "program/trace_text.h"

namespace temper {

// Rates of the machine that one rank runs on. Pointers are borrowed.
struct StepRates {
  const DeviceRates* device = nullptr;
  const DeviceRates* host = nullptr;  // of kernels on values in host memory; nullptr: as the device's
  LinkRates links;                    // between tiers; unused if nothing moves
  // Time of a collective or a send, or of an op's own exchange with other ranks. Empty: one rank.
  struct Exchange {
    Seconds seconds;
    Bytes between_hosts;  // sent bytes that cross hosts
  };
  std::function<Exchange(const Instruction&, const Types& inputs, const Cost&)> exchange;
  // Ranks share the cores of one machine: a background collective takes time from kernels.
  bool shared = false;
};

// All executions of an op in a phase.
struct OpTotal {
  Op op;
  Phase phase;
  int64_t runs = 0;
  Seconds seconds;
};

struct StepEstimate {
  Seconds step;
  // The parts of the step's time on the compute queue; their sum is `step`.
  Seconds arithmetic, memory, launches;
  Seconds collectives;                         // blocking
  Seconds moves;                               // between tiers, blocking
  Seconds waiting;                             // for background collectives
  Seconds stalled;                             // waiting for background moves, or slowed down by them
  Seconds stages;                              // waiting for other stages: the bubble
  Seconds hidden;                              // background work that overlaps with kernels
  Bytes sent_within_host, sent_between_hosts;  // by a rank, on average
  std::vector<OpTotal> ops;                    // longest first
  std::vector<TraceRow> events;                // if requested, in order of issue
  // When each micro-batch ended; the update comes after the last.
  std::vector<Seconds> micro_batches;

  // The name of the largest term above.
  const char* Bottleneck() const;
};

}  // namespace temper
