// Planner: compiles variants of a run for a cluster and forecasts each; the basis of `temper plan`'s report, advice and
// search. Compiling is pure, so variants may be planned on several threads at once.
#pragma once

#include <map>
#include <optional>

#include "cluster/cluster.h"
#include "compile/run/compiled_run.h"
#include "compile/run/cut_estimates.h"
#include "plan/forecast.h"

namespace temper {

struct PlannedRun {
  CompiledRun run;
  StepFacts facts;
  Forecast forecast;
};

class Planner {
 public:
  // `model` must outlive the planner. `rows`: the known contents of rows. `rates`: by which runs choose, instead of
  // the cluster's.
  Planner(const Model& model, Cluster cluster, const RowFill& rows = {}, std::optional<RunRates> rates = {});

  // Compiles the run within the cluster's memory, with the tiers that `config` names; a run that does not fit in any
  // way is compiled for devices that are large enough. REQUIRES: `config` is resolved. Errors: those of CompileRun;
  // more ranks than the cluster has devices.
  Result<PlannedRun> Plan(const RunConfig& config, int ranks, bool keep_events = false) const;
  // Errors: as Plan, and kOutOfMemory where it does not fit in any way.
  Result<PlannedRun> PlanIfItFits(const RunConfig& config, int ranks) const;
  // Without the Programs that only read, as evaluation, where the cluster's devices have a memory of their own.
  Result<PlannedRun> PlanTraining(const RunConfig& config, int ranks) const;
  // Searches fewer choices of tiers (MemorySpec::quick): a plan with these settings is as fast or faster.
  // `first_that_fits`: fewer still (MemorySpec::first_that_fits), of which some that fit are not found.
  Result<PlannedRun> PlanQuickly(const RunConfig& config, int ranks, bool first_that_fits = false) const;

  const Cluster& cluster() const { return cluster_; }
  const Model& model() const { return model_; }
  const RowFill& rows() const { return rows_; }

 private:
  struct Wanted {
    bool events = false;
    bool trains_only = false;
    bool too_large = true;  // a plan for larger devices, if none fits
  };
  Result<PlannedRun> PlanWithin(MemorySpec memory, const RunConfig& config, int ranks, const Wanted& wanted) const;
  RunRates RatesFor(int ranks) const;
  MemorySpec MemoryFor(const RunConfig& config, int ranks) const;

  const Model& model_;
  Cluster cluster_;  // its attention rates account for `rows_`
  const RowFill rows_;
  const std::optional<RunRates> rates_;
};

// For a run of `ranks` ranks on the planner's cluster. `planner` must outlive the result. `plans`: gets the plans
// of cuts that few blocks have chosen and whose values leave the device, by rows of a micro-batch, so that none is made
// twice; it must outlive the result, too. nullptr: such a choice is confirmed by a quicker search.
CutEstimates CutOnCluster(const Planner& planner, const RunConfig& config, int ranks,
                          std::map<int64_t, PlannedRun>* plans = nullptr);

// The figures of a step of `micro_batches`, of which `planned` has no more than kFewMicroBatches.
StepFigures FiguresOf(const PlannedRun& planned, int64_t micro_batches);

// An upper bound of the additional seconds of that step on `cluster`, whose host has `on_host` of its ranks, if
// `excess` bytes of each live there, or what it has no room for on its disk, if it may. nullopt: there is no room, or
// the host is the device.
std::optional<Seconds> SecondsOfSpill(const Cluster& cluster, const RunConfig& config, int on_host,
                                      const StepFigures& figures, Bytes excess, int64_t micro_batches,
                                      bool may_read_disk = false);

// The tokens of a step of that run, and the arithmetic that it requires.
StepFacts StepFactsOf(const CompiledRun& run, const RunConfig& config, const RowFill& rows = {});

// The settings of a run on `cluster`, as far as its devices decide them: those with a memory of their own are GPUs.
RunConfig OnDevicesOf(const Cluster& cluster, RunConfig config);

// The number of ranks of a run on `cluster`: as its options say, or all devices.
int RanksOn(const Cluster& cluster, const RunConfig& config);

// Lowers the forecast's limits to the run's own, where these are lower than the memory of the device and its host.
void KeepWithin(const RunConfig::Memory& memory, Forecast* forecast);

}  // namespace temper
