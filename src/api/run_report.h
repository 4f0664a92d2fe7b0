// What a run tells its user about itself before its first step.
#pragma once

#include "api/training_run.h"

namespace temper {

// Its model, mesh, memory, settings, batch and plan. REQUIRES: it is compiled.
void Announce(const TrainingRun& run);
// The folders that it uses in every step. REQUIRES: its memory is reserved.
void LogDisk(const TrainingRun& run);
// What 100 % MFU is, per rank: what products reach now, or when the machine was calibrated if that is more, so that it
// means the same in each run. Says which, and whether the machine is slower now. 0 if the peak is unknown.
double SettlePeak(const TrainingRun& run);

}  // namespace temper
