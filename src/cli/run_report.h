// What a run tells its user about itself before its first step. To stderr.
#pragma once

#include "cli/training_run.h"

namespace temper {

// Its model, mesh, memory, settings, batch and plan. REQUIRES: it is compiled.
void Announce(const TrainingRun& run);
// The folders that it uses in every step. REQUIRES: its memory is reserved.
void LogDisk(const TrainingRun& run);
// What 100 % MFU is, and whether it is less than when the machine was calibrated. Nothing if the peak is unknown.
void LogPeak(const TrainingRun& run);

}  // namespace temper
