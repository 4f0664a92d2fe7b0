// What the plan's report says of a run besides its Program.
#pragma once

#include "cli/compiled_run.h"
#include "cli/train_setup.h"
#include "plan/report.h"

namespace temper {

PlanFacts PlanFactsOf(const TrainSetup& setup, const CompiledRun& run);

}  // namespace temper
