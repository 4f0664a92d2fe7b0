// The options of a plan besides those of the run: for which machines, and what is reported.
#pragma once

#include <optional>
#include <string>

#include "cluster/cluster.h"
#include "compile/run/run_rates.h"
#include "config/option_set.h"
#include "settings/run_config.h"

namespace temper {

struct PlanOptions {
  bool json = false, program = false, sharding = false, read_data = false;
  std::string cluster, trace, html, measured, search;
  std::optional<double> price;

  OptionGroup Group();  // bound to this
  // The first given option that needs the speed of a cluster; nullptr: none.
  const char* NeedsCluster() const;
};

// The named cluster; without a name this machine's calibration. `measure`: if there is none yet, calibrate.
Result<std::optional<Cluster>> ClusterOf(const PlanOptions& options, bool measure);

// The facts for resolving a run: those of the cluster's devices instead of this machine's.
Result<RunFacts> FactsOn(const std::optional<Cluster>& cluster, DeviceChoice device);

// The rates that `rates` names for a plan on `cluster`; nullopt: the cluster's own.
Result<std::optional<RunRates>> RatesOnCluster(const RunConfig& config, const Cluster& cluster);

// Whether this machine's calibration, of its CPU, holds for the run: a larger mesh, or a GPU, is planned without
// seconds.
bool IsForThisMachine(const RunConfig& config);

}  // namespace temper
