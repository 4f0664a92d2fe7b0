// The data of a run: files as samples. Shared by `train`, `eval` and `data preview`.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "run/data_request.h"
#include "run/opened_model.h"
#include "run/ranks.h"
#include "settings/run_config.h"

namespace temper {

// A data set with the tokenizer and template that made it.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  Dataset dataset;
  std::string token_file;  // empty: in memory
};

// What a resumed run compares: the samples and, where sources have their own passes, where each begins.
std::string DataFingerprint(const Dataset& dataset, const DataSources& sources);

// What loading the data would say of the model's tokenizer and of the row template, before anything costly. A model
// without one is enough where all rows are ready-made tokens.
Status CheckTokenizer(Env& env, const OpenedModel& model, const RunConfig& config);

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request);

// The same on all ranks. Only the first reads and tokenises, with as many threads as all ranks on its machine have
// together: the others need no copy of the files and no tokenizer. The ranks of a machine map one token file; a machine
// whose folder does not have it gets a copy over the communicator. All ranks call this at the same place. REQUIRES:
// request.cache is not empty, or there is one rank.
Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks);

// What packing makes of a run that has so many documents and rows in an epoch, and so many rows in a step.
Result<PackedRows> PackedRowsOf(const RunConfig& config, int64_t documents, int64_t rows, int64_t rows_per_step);

}  // namespace temper
