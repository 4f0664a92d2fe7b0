// Calibration: this machine as a cluster, from micro-benchmarks of its own kernels: products by shape, attention by
// length, everything else by size, collectives between ranks, a disk. No training step is run.
#pragma once

#include <functional>
#include <string>

#include "base/env.h"
#include "plan/cluster.h"

namespace temper {

// `folder`: on the disk to be measured; what is written there is removed. `progress` is told what is measured next.
// Takes some seconds of all cores. The results are those of now: a machine that does other things is measured slow.
Result<Cluster> CalibrateThisMachine(Env& env, const std::string& folder,
                                     const std::function<void(const std::string&)>& progress);

// Where the calibration of this machine is kept: temper/this.yaml in XDG_CACHE_HOME, or ~/.cache.
Result<std::string> CalibrationPath();

// A preset, a file, or "this": what was measured here. Errors: "this" before it was measured, or on another machine.
Result<Cluster> OpenClusterOrThis(Env& env, const std::string& name);

}  // namespace temper
