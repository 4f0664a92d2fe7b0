// LoadDataset: turns data files into samples, in the order of files and rows for any number of threads.
// SplitForEvaluation: chooses the samples that are held out for evaluation.
#pragma once

#include <cstdint>
#include <limits>
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
  bool skip_bad_rows = false;  // skip and count bad rows instead of stopping at the first
  int threads = 1;
};

struct DataInput {
  std::string path;
  int64_t max_rows = std::numeric_limits<int64_t>::max();  // only the first ones are read
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
  std::vector<DataFile> files;  // and the format detected for each, to be shown
  DataStatistics statistics;
  std::vector<uint32_t> lines;  // of each sample: the line at which its row begins

  // "data.jsonl line 12": the row that gave the sample.
  std::string PlaceOf(int64_t sample) const;
};

// Errors name file and row. A text file has one row. Data without any supervised token is an error, too. `threads`
// threads use `tokenizer` and `chat_template` (may be null) at once.
Result<Dataset> LoadDataset(Env& env, const std::vector<DataInput>& inputs, const Tokenizer& tokenizer,
                            const ChatTemplate* chat_template, const DatasetOptions& options);

struct DataSplit {
  std::vector<int32_t> train, evaluation;  // ids of samples, ascending
};

// Draws the samples to evaluate on: `amount` below 1 is a fraction (at least one sample), otherwise a count; 0 is none.
// A pure function of its arguments. Error: nothing would be left to train on.
Result<DataSplit> SplitForEvaluation(int64_t samples, double amount, uint64_t seed);

}  // namespace temper
