// What the end of a run says whose loss stayed above its start (train/divergence.h).
#pragma once

#include <string>

#include "base/env.h"
#include "settings/run_config.h"
#include "train/loop.h"

namespace temper {

// Whether the weights of `step` are from after the divergence. REQUIRES: the run has diverged.
bool IsFromDivergence(const RunProgress& progress, int64_t step);

// What has happened, the last good checkpoint of the output folder, and what to do. `stopped`: by stop_on_divergence.
Result<std::string> DescribeDivergedRun(Env& env, const RunConfig& config, const RunProgress& progress, bool stopped);

}  // namespace temper
