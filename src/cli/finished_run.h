// The end of a run: the result at the top of the output folder, the loss curve, and what to do next.
#pragma once

#include "checkpoint/export.h"
#include "cli/compiled_run.h"
#include "cli/opened_model.h"
#include "train/loop.h"
#include "train/run_config.h"

namespace temper {

// Puts the adapter (or the model) of the last checkpoint, or with load_best_model_at_end of the best, at the top of the
// output folder; prints the summary. Returns the exit code.
Result<int> FinishRun(Env& env, const OpenedModel& model, const RunConfig& config, const CompiledRun& run,
                      const RunProgress& progress);

}  // namespace temper
