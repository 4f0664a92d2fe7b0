// The end of a run: the result at the top of the output folder, the loss curve, and what to do next.
#pragma once

#include <optional>
#include <string>

#include "compile/run/compiled_run.h"
#include "run/resume.h"
#include "settings/run_config.h"
#include "train/loop.h"

namespace temper {

struct FinishedRun {
  const RunConfig& config;
  const std::optional<ResumePoint>& resume;
  const std::string& model_folder;  // of config.json and tokenizer
  const Model& model;
  const CompiledRun& compiled;
  const RunProgress& progress;
  std::string architecture;  // of the model
  int64_t samples = 0;       // to train on
  bool chats = false;        // the model has a chat template
};

// Puts the adapter (or model) of the last checkpoint (with load_best_model_at_end: of the best) at the top of the
// output folder, with tokenizer, chat template and model card; logs the summary.
Status FinishRun(Env& env, const FinishedRun& run);

}  // namespace temper
