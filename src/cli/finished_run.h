// The end of a run: the result at the top of the output folder, the loss curve, and what to do next.
#pragma once

#include "cli/compiled_run.h"
#include "cli/train_setup.h"
#include "train/loop.h"

namespace temper {

// Puts the adapter (or the model) of the last checkpoint, or with load_best_model_at_end of the best, at the top of the
// output folder; prints the summary. `chats`: the model has a chat template. Returns the exit code.
Result<int> FinishRun(Env& env, const TrainSetup& setup, const CompiledRun& run, const RunProgress& progress,
                      bool chats);

}  // namespace temper
