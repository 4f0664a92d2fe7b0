// Evaluation: mean loss of a model on a data file, over its supervised tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/option_set.h"
#include "run/model_options.h"
#include "train/trainer.h"

namespace temper {

struct EvaluationSettings {
  ModelOptions model;
  DataSources data;
  RowColumns columns;
  std::string data_cache;
  std::optional<int64_t> max_seq_len;
  bool train_on_prompt = false, skip_bad_rows = false;
  JsonObject kwargs;
  std::string row_template;
  ReasoningTurns reasoning_turns = ReasoningTurns::kAll;

  std::vector<OptionGroup> Groups();  // bound to this
};

struct Evaluation {
  EvaluationReport report;
  int64_t samples = 0;
};

// Opens and loads the model, reads the data and measures. `stop` is asked before each batch; true ends with
// kInterrupted. What it says goes to the log of this thread.
Result<Evaluation> RunEvaluation(EvaluationSettings settings, const std::function<bool()>& stop = nullptr);

}  // namespace temper
