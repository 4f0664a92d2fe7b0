// Calibration: measures this machine as a cluster, by micro-benchmarks of its own kernels: products by shape, attention
// by length, everything else by size, collectives between ranks, a disk. Runs no training step.
#pragma once

#include <functional>
#include <string>

#include "base/env.h"
#include "plan/cluster.h"

namespace temper {

// `folder`: on the disk to be measured; files written there are removed. `progress` is called with the next
// measurement. Takes some seconds on all cores. Other work on the machine makes the results slower.
Result<Cluster> CalibrateThisMachine(Env& env, const std::string& folder,
                                     const std::function<void(const std::string&)>& progress);

// The file of this machine's calibration: temper/this.yaml in XDG_CACHE_HOME, or ~/.cache.
Result<std::string> CalibrationPath();

// A preset, a file, or "this": this machine's calibration. Errors: "this" before calibration, or from another machine.
Result<Cluster> OpenClusterOrThis(Env& env, const std::string& name);

}  // namespace temper
