// The data of a run: turns files into samples and reports on them
// to the user. Shared by `train`, `eval` and `data preview`.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/dataset.h"
#include "data/packing.h"
#include "run/opened_model.h"
#include "run/ranks.h"

namespace temper {

struct DataRequest {
  DataSources sources;
  const char* option = "data";  // that gave them, for messages
  int64_t max_seq_len = 0;
  bool train_on_prompt = false, skip_bad_rows = false;
  std::string template_date;        // YYYY-MM-DD
  JsonObject chat_template_kwargs;  // variables for the chat template
  int threads = 1;
  std::string cache;  // the folder that keeps the tokens in a file; empty: they are kept in memory
};

// A data set with the tokenizer and template that made it.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  Dataset dataset;
  std::string token_file;  // empty: in memory
};

// The request for a run's training data. REQUIRES: `config` is resolved.
DataRequest TrainingData(const RunConfig& config);

// The files of `sources`, which the user gave as `option`. Errors: a name that is in no cache; max_samples of a text
// file, which has one row.
Result<std::vector<DataInput>> FindInputs(Env& env, const DataSources& sources, const char* option);

// How often an epoch sees the samples of each source; empty if all are seen once. `dataset` was loaded from `sources`.
std::vector<SamplePasses> PassesOf(const Dataset& dataset, const DataSources& sources);

// What a resumed run compares: the samples and, where sources have their own passes, where each begins.
std::string DataFingerprint(const Dataset& dataset, const DataSources& sources);

Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request);

// The same on all ranks. Only the first reads and tokenises, with as many threads as all ranks on its machine have
// together: the others need no copy of the files and no tokenizer. The ranks of a machine map one token file; a machine
// whose folder does not have it gets a copy over the communicator. All ranks call this at the same place. REQUIRES:
// request.cache is not empty, or there is one rank.
Result<RunData> LoadRunData(Env& env, const OpenedModel& model, const DataRequest& request, const Ranks& ranks);

// "data.jsonl: 7473 rows (prompt/completion), ..." and warnings
// about rows that were cut, dropped or skipped, to stderr. Of several files also their parts of an epoch's tokens.
// `max_seq_len`: tokens of a row; `positions`: of the model.
void DescribeData(const Dataset& dataset, const DataSources& sources, int64_t max_seq_len, int64_t positions);

}  // namespace temper
