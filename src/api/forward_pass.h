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
  std::string split;
  RowReading reading;
  std::string data_cache;
  std::optional<int64_t> max_seq_len;
  bool train_on_prompt = false, skip_bad_rows = false;
  JsonObject kwargs;
  std::string row_template;
  ReasoningTurns reasoning_turns = ReasoningTurns::kAll;
  LongRows long_rows = LongRows::kSplit;

  // Bound to this. `what`: help of --data: "file to measure on". `answers`: with what is for answers alone.
  std::vector<OptionGroup> Groups(const char* what, bool answers);
};

// What a forward pass computes.
struct ForwardTask {
  ProgramKind kind;                          // kEval, or kScore, which needs no labels
  const ObjectiveRule* objective = nullptr;  // null: as the model's head is: sft, classify, reward
  TaskSettings tasks = {};
  std::string reference = {};  // a model to compare with; empty: the model without its adapter
  std::string teacher = {};    // the model that it learned from, for such an objective
  BaseType teacher_base_dtype = BaseType::kAuto;
};

struct ForwardPass {
  const ObjectiveRule* objective;
  int64_t row = 0;  // tokens of a row
  OpenedModel model;
  RunData data;
  Processor processor;
  CompiledPrograms programs;
  std::unique_ptr<Arena> arena;
  FarArenas far;
  std::unique_ptr<Executor> executor;  // uses what stands above
  // With an objective that compares with another model: that model, and its Program in the same memory.
  std::optional<OpenedModel> reference_model;
  std::unique_ptr<Executor> reference;
  std::vector<LoraModule> adapters;
  std::vector<TrainedRows> rows;

  std::string PlaceOf(int64_t sample) const { return data.dataset.PlaceOf(sample); }
  BufferLookup Lookup() const;
  // Reads the model's weights into memory.
  Status Load() const {
    TEMPER_RETURN_IF_ERROR(model.Load(Lookup()));
    TEMPER_RETURN_IF_ERROR(model.LoadTeacher(Lookup()));
    TEMPER_RETURN_IF_ERROR(model.LoadRowsBeside(rows, Lookup()));
    return model.LoadRowNormsOf(adapters, NormsOf::kSum, /*magnitudes=*/false, Lookup());
  }
};

// Opens the model, reads the data, compiles and reserves memory, whose weights are still to be loaded. What it says
// goes to the log of this thread. Errors: a graph that the objective does not have, an objective that needs another
// head.
Result<std::unique_ptr<ForwardPass>> OpenForwardPass(ForwardSettings settings, ForwardTask task);

}  // namespace temper
