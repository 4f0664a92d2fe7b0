// Forecast: whether a compiled step fits a cluster, and how fast and how dear it will be there.
#pragma once

#include "plan/simulation.h"

namespace temper {

// What rows hold on average. By default each is one document that fills it.
struct RowFill {
  double tokens = 1;    // the part of its places that hold tokens
  double attended = 1;  // of the pairs of a row that is one document, the part that attention computes
};

// What the Program does not say of itself.
struct StepFacts {
  int64_t tokens = 0;  // of a step, all ranks
  Flops model_flops;   // that the model needs for them, all ranks
  DType dtype = DType::kF32;
};

struct Forecast {
  Bytes bytes;                   // of the device's memory that a rank's step reserves; of stages, the most
  Bytes limit;                   // that it may
  Bytes host_bytes, host_limit;  // the same of the host's, beside the device's
  Bytes disk_bytes;              // on a disk
  bool fits = false;
  StepEstimate simulation;  // of the first stage, where there are several
  double bubble = 0;        // share of the stages' time in which they wait for each other
  double tokens_per_second = 0;
  double mfu = 0;                       // model_flops over what the devices could compute in that time
  double price_per_million_tokens = 0;  // 0: the cluster has no price
};

// `stages`: as for Simulate (plan/simulation.h).
Forecast ForecastOf(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                    const StepFacts& facts, bool keep_events = false);

}  // namespace temper
