// Planner: compiles variants of a run for a cluster and forecasts each. What `temper plan` reports, advises and
// searches with. Compiling is pure, so variants may be planned on several threads at once.
#pragma once

#include <memory>

#include "plan/advice.h"
#include "plan/cluster.h"
#include "plan/compiled_run.h"
#include "plan/forecast.h"

namespace temper {

struct PlannedRun {
  CompiledRun run;
  StepFacts facts;
  Forecast forecast;
};

class Planner {
 public:
  // `model` must outlive the planner. `rows`: what rows are known to hold.
  Planner(const Model& model, Cluster cluster, const RowFill& rows = {});

  // Within the cluster's memory, as `config` places it; what fits in no way is compiled for devices that hold it all.
  // REQUIRES: `config` is resolved. Errors: what CompileRun refuses; more ranks than the cluster has devices.
  Result<PlannedRun> Plan(const RunConfig& config, int ranks, bool keep_events = false) const;

  const Cluster& cluster() const { return cluster_; }
  const Model& model() const { return model_; }
  const RowFill& rows() const { return rows_; }

 private:
  const Model& model_;
  Cluster cluster_;  // whose attention takes what `rows_` say
  const RowFill rows_;
};

// What a step of that run trains on and needs.
StepFacts StepFactsOf(const CompiledRun& run, const RunConfig& config, const RowFill& rows = {});

// Ranks that a run on `cluster` has: what its options name, or all devices.
int RanksOn(const Cluster& cluster, const RunConfig& config);

// Each setting that would lower what a rank has too little memory for, with what it saves and costs; then those that
// must come together where none suffices. Every one is compiled. REQUIRES: `planned` does not fit.
Result<std::vector<Remedy>> FindRemedies(const Planner& planner, const RunConfig& config, const PlannedRun& planned);

}  // namespace temper
