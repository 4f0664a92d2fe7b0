// CompileTraining: cuts a run's batch, if it is to be cut here, and compiles its Programs within the memory that it
// has.
#pragma once

#include "api/training_run.h"

namespace temper {

// Also opens the model's weights, if the run reads or keeps them, and adapts the rows of a step to a resumed run. All
// ranks call this. REQUIRES: `run.available` is set.
Status CompileTraining(TrainingRun& run);

}  // namespace temper
