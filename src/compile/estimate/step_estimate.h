// step_estimate: what a step takes, found by walking its Program as the executor does, with the seconds of a cost model
// instead of kernels. Nothing is run and no memory is held. Passes that choose by cost ask it, and `temper plan`
// (plan/simulation.h).
//
// Queues: kernels, and collectives and moves that are needed at once, follow each other on `compute`. What runs in the
// background has a queue per lane (program/waits.h) beside it: collectives, and the moves of each link and direction
// (compile/estimate/move_lanes.h). A kernel waits for exactly what the executor would let it wait for.
#pragma once

#include <functional>
#include <vector>

#include "compile/rates/device_rates.h"
#include "compile/residency/residency.h"
#include "program/program.h"
#include "program/trace_text.h"

namespace temper {

// What one rank has of a machine. Pointers are borrowed.
struct StepRates {
  const DeviceRates* device = nullptr;
  const DeviceRates* host = nullptr;  // of kernels on what lies in the host's memory; nullptr: as the device's
  LinkRates links;                    // between tiers; not asked where nothing moves
  // Of a collective or a send, or of what an op gives other ranks along the way. Empty: one rank.
  struct Exchange {
    Seconds seconds;
    Bytes between_hosts;  // of what is sent
  };
  std::function<Exchange(const Instruction&, const Types& inputs, const Cost&)> exchange;
  // Ranks are shares of one machine's cores: a collective in the background takes the time of kernels.
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
  // What the step's time on the compute queue is spent on; their sum is `step`.
  Seconds arithmetic, memory, launches;
  Seconds collectives;                         // needed at once
  Seconds moves;                               // between tiers, needed at once
  Seconds waiting;                             // for collectives in the background
  Seconds stalled;                             // for moves in the background, or slowed by them
  Seconds stages;                              // waiting for other stages: the bubble
  Seconds hidden;                              // of what runs in the background, beside kernels
  Bytes sent_within_host, sent_between_hosts;  // by a rank, on average
  std::vector<OpTotal> ops;                    // longest first
  std::vector<TraceRow> events;                // where asked for, in order of issue
  // When each micro-batch was done; the update comes after the last.
  std::vector<Seconds> micro_batches;

  // The largest of the terms above, in words.
  const char* Bottleneck() const;
};

}  // namespace temper
