// ForwardPass: a trained model in memory, data, and a Program of one of its objective's graphs: what `eval` and `score`
// share.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compile/train_step.h"
#include "config/option_set.h"
#include "run/data.h"
#include "run/far_memory.h"
#include "run/model_options.h"
#include "runtime/executor.h"

namespace temper {

struct ForwardSettings {
  ModelOptions model;
  DataSources data;
  RowColumns columns;
  std::string data_cache;
  std::optional<int64_t> max_seq_len;
  bool train_on_prompt = false, skip_bad_rows = false;
  JsonObject kwargs;
  std::string row_template;
  ReasoningTurns reasoning_turns = ReasoningTurns::kAll;

  // Bound to this. `what`: help of --data: "file to measure on". `answers`: with what is for answers alone.
  std::vector<OptionGroup> Groups(const char* what, bool answers);
};

struct ForwardPass {
  const ObjectiveRule* objective;  // as the model's head is: sft, classify, reward
  int64_t row = 0;                 // tokens of a row
  OpenedModel model;
  RunData data;
  Processor processor;
  CompiledPrograms programs;
  std::unique_ptr<Arena> arena;
  FarArenas far;
  std::unique_ptr<Executor> executor;  // uses what stands above

  std::string PlaceOf(int64_t sample) const { return data.dataset.PlaceOf(sample); }
};

// Opens and loads the model, reads the data, compiles. `kind`: kEval, or kScore, which needs no labels. What it says
// goes to the log of this thread. Errors: a graph that the model's objective does not have.
Result<std::unique_ptr<ForwardPass>> OpenForwardPass(ForwardSettings settings, ProgramKind kind);

}  // namespace temper
