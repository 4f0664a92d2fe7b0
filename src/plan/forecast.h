// Forecast: whether a compiled step fits a cluster, and its speed and price there.
#pragma once

#include "plan/simulation.h"

namespace temper {

// Average contents of rows. By default each row is one document that fills it.
struct RowFill {
  double tokens = 1;    // fraction of positions that hold tokens
  double attended = 1;  // fraction of pairs that attention computes, relative to a row of one document
};

// Facts that are not in the Program.
struct StepFacts {
  int64_t tokens = 0;  // per step, over all ranks
  Flops model_flops;   // required by the model for these tokens, over all ranks
  DType dtype = DType::kF32;
  double passes_beside = 0;  // of a rank's Programs in `beside`, in each step
};

struct Forecast {
  Bytes bytes;                   // device memory that a rank's step reserves; the maximum over stages
  Bytes limit;                   // device memory that it may reserve
  Bytes host_bytes, host_limit;  // the same for host memory, besides the device's
  Bytes disk_bytes;              // on a disk
  bool fits = false;
  StepEstimate simulation;  // of the first stage, if there are several
  double bubble = 0;        // fraction of the stages' time spent waiting for each other
  double tokens_per_second = 0;
  double mfu = 0;                       // model_flops / peak arithmetic of the devices in that time
  double price_per_million_tokens = 0;  // 0: the cluster has no price
};

// `stages`: as for Simulate (plan/simulation.h). `beside`: the Programs, of the same stages, of passes that a step
// needs beside its own; events are those of `stages` alone.
Forecast ForecastOf(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                    const StepFacts& facts, bool keep_events = false, std::span<const Program* const> beside = {});

}  // namespace temper
