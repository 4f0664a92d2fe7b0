// LoadDataset: data files to samples, in the order of files and rows whatever the number of threads.
// SplitForEvaluation: which of them are kept apart to measure on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/record.h"
#include "data/token_store.h"
#include "data/tokenize.h"

namespace temper {

struct DatasetOptions {
  TokenizeOptions tokenize;
  bool skip_bad_rows = false;  // count rows that cannot be read instead of stopping at the first
  int threads = 1;
};

struct DataFile {
  std::string path;
  RecordFormat format = RecordFormat::kText;
  std::string format_place;  // the row that decided: "line 1"
  int64_t rows = 0;
  int64_t first_sample = 0;
};

struct Dataset {
  TokenStore store;
  std::vector<DataFile> files;  // what was taken for what, to be stated
  DataStatistics statistics;
  std::vector<uint32_t> lines;  // of each sample: where its row begins in its file

  // "data.jsonl line 12": the row that the sample was made of.
  std::string PlaceOf(int64_t sample) const;
};

// Errors name file and row; no supervised token in all of the data is an error, too. `tokenizer` and `chat_template`
// (may be null) are used by `threads` threads at once.
Result<Dataset> LoadDataset(Env& env, const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                            const ChatTemplate* chat_template, const DatasetOptions& options);

struct DataSplit {
  std::vector<int32_t> train, evaluation;  // ids of samples, ascending
};

// Draws the samples to evaluate on: `amount` below 1 is a fraction of them (at least one), otherwise their number; 0 is
// none. A pure function of its arguments. Error: nothing would be left to train on.
Result<DataSplit> SplitForEvaluation(int64_t samples, double amount, uint64_t seed);

}  // namespace temper
