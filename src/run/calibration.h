// Calibration: measures this machine as a cluster, by micro-benchmarks of its own kernels: products by shape, attention
// by length, everything else by size, collectives between ranks, a disk. Runs no training step.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/env.h"
#include "cluster/cluster.h"
#include "device/device.h"

namespace temper {

// `folder`: on the disk to be measured; files written there are removed. `progress` is called with the next
// measurement. Takes CalibrationTakes() on all cores. Other work on the machine makes the results slower;
// Cluster::other_load then names it. Error: that takes more than `most` seconds.
Result<Cluster> CalibrateThisMachine(Env& env, const std::string& folder,
                                     const std::function<void(const std::string&)>& progress, Seconds most);

// About how long that takes on an idle machine.
Seconds CalibrationTakes();

// Measures this machine, says so line by line, and saves the result: the file of CalibrationPath. Error, before
// anything is measured: that file cannot be written.
Result<Cluster> CalibrateAndSave(Env& env);

// A run on this machine, as its rates are measured. With several ranks, each is measured by its own process while the
// others compute beside it.
struct RunOnMachine {
  int ranks = 1, threads = 1;  // on this machine; of each rank
  DType dtype = DType::kF32;
  Device* gpu = nullptr;  // what the rank computes on; nullptr: the CPU
  std::string folder;     // on the disk that may hold values; empty: there is none yet
};

// "2 ranks of 1 thread" and processor, threads and instruction set, or the GPU: rates hold for runs with both equal.
std::string NameOf(const RunOnMachine& run);
std::string MachineOf(const RunOnMachine& run);

// The rates of a rank as a cluster's text, rounded, in about a second: products, attention, a sum, AdamW's
// update, copies, the disk. All ranks of the machine call this at once.
Result<std::string> MeasureRun(Env& env, const RunOnMachine& run);

// The part of this machine's calibration that holds for such a run, in the same form; nullopt if there is none.
std::optional<std::string> CalibrationOf(Env& env, const RunOnMachine& run);

// The file of this machine's calibration: temper/this.yaml in XDG_CACHE_HOME, or ~/.cache.
Result<std::string> CalibrationPath();

// A preset, a file, or "this": this machine's calibration. Errors: "this" before calibration, or from another machine.
Result<Cluster> OpenClusterOrThis(Env& env, const std::string& name);
Result<std::string> ReadClusterOrThis(Env& env, const std::string& name);  // its text

}  // namespace temper
