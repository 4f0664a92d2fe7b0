// DataRequest: which data a command asks for, and how it is to be tokenized. FindInputs: the files that it names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/packing.h"
#include "settings/run_config.h"

namespace temper {

struct DataRequest {
  DataSources sources;
  RowReading reading;  // of all files
  RowUse use = RowUse::kAnswers;
  const char* option = "data";  // that gave them, for messages
  int64_t max_seq_len = 0;
  bool train_on_prompt = false, skip_bad_rows = false;
  std::string template_date;        // YYYY-MM-DD
  JsonObject chat_template_kwargs;  // variables for the chat template
  std::string row_template;         // a file, or itself; empty: rows have a format
  ReasoningTurns reasoning_turns = ReasoningTurns::kAll;
  LongRows long_rows = LongRows::kSplit;
  int threads = 1;
  std::function<void(int64_t, const Sample&)> visit;  // as DatasetOptions'; not called for tokens found in `cache`
  std::string cache;  // the folder that keeps the tokens in a file; empty: they are kept in memory
};

// What rows are read for: of a task, and with a row template, if there is one.
RowUse RowUseOf(const ObjectiveRule& objective, const std::string& row_template);
RowUse RowUseOf(const RunConfig& config);
// The request for a run's training data. REQUIRES: `config` is resolved.
DataRequest TrainingData(const RunConfig& config);

// How the rows of a source are read: its own settings go before those of all.
RowReading Combined(const RowReading& of_run, const DataSource& source);

// The files of `sources`, which the user gave as `option`. `reading`: of all files.
// Errors: a name that is in no cache; a folder or a pattern; max_samples, columns or roles of its own of a text file,
// which is one document.
Result<std::vector<DataInput>> FindInputs(Env& env, const DataSources& sources, const RowReading& reading, RowUse use,
                                          const char* option);

// How often an epoch sees the samples of each source; empty if all are seen once. `dataset` was loaded from `sources`.
std::vector<SamplePasses> PassesOf(const Dataset& dataset, const DataSources& sources);

}  // namespace temper
